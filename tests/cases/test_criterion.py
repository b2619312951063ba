"""What counts as reproduced, and what is expected on which versions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from kl_audit.cases.criterion import (
    expected_outcome,
    is_reported,
    parse_criterion,
    parse_selector,
    relative_error,
)
from kl_audit.errors import UsageError

nan, inf = math.nan, math.inf


@pytest.mark.parametrize(
    ("text", "got", "truth", "holds"),
    [
        ("negative", -1e-300, Fraction(1), True),
        ("negative", -0.0, Fraction(1), False),
        ("negative", nan, Fraction(1), False),
        ("zero", -0.0, Fraction(1), True),
        ("zero", 5e-324, Fraction(1), False),
        ("nan", nan, Fraction(0), True),
        ("nan", inf, Fraction(0), False),
        ("infinite", -inf, Fraction(0), True),
        ("infinite", nan, Fraction(0), False),
        ("non-finite", nan, Fraction(0), True),
        ("non-finite", 1e308, Fraction(0), False),
        ("off by 10%", 1.11, Fraction(1), True),
        ("off by 10%", 1.09, Fraction(1), False),
        ("off by 0.5", nan, Fraction(1), True),
        ("off by 0.5", 1.0, None, False),
        ("off by 0.5", 1e-300, Fraction(0), True),
        ("above 0x1p-1", 0.75, None, True),
        ("above 0.5", 0.5, None, False),
        ("below -1", -2.0, None, True),
        ("below -1", nan, None, False),
    ],
)
def test_a_condition_holds_or_not(text, got, truth, holds):
    """Each condition is true of what it names, and of nothing else."""
    assert parse_criterion(text).holds(got, truth, None) is holds


@pytest.mark.parametrize("text", ["", "negativ", "off by", "off by x", "above", "Negative", "off by 1 %"])
def test_what_is_no_condition_is_refused(text):
    """The message lists the conditions."""
    with pytest.raises(UsageError, match="expected 'as reported'"):
        parse_criterion(text)


@pytest.mark.parametrize(
    ("got", "reported", "same"),
    [
        (-5.960464477539063e-08, "-5.9604645e-08", True),
        (-5.960465e-08, "-5.9604645e-08", False),
        (0.1927, "0.1927", True),
        (0.19281, "0.1927", False),
        (3269017.5, "3269017", True),
        (3269019.0, "3269017", False),
        (nan, "nan", True),
        (1.0, "nan", False),
        (nan, "1", False),
        (inf, "inf", True),
        (-inf, "inf", False),
        (0.5, "0x1p-1", True),
        (0.5000001, "0x1p-1", False),
    ],
)
def test_a_number_is_the_reported_one_to_its_digits(got, reported, same):
    """One unit of the last digit that the report gives is allowed; a hexadecimal number is exact."""
    assert is_reported(got, reported) is same


def test_a_relative_error_knows_infinities_and_nothing():
    """A finite for an infinite result is infinitely wrong, and without a truth there is no error."""
    assert relative_error(1.5, Fraction(1)) == 0.5
    assert relative_error(inf, Fraction(10) ** 400) == inf
    assert relative_error(inf, inf) == 0
    assert relative_error(-inf, inf) == inf
    assert relative_error(nan, Fraction(1)) == inf
    assert relative_error(0.0, Fraction(0)) == 0
    assert relative_error(-1e-320, Fraction(0)) == inf
    assert relative_error(1.0, None) is None
    assert relative_error(1.0, nan) is None


def test_the_first_selector_that_matches_says_what_is_expected():
    """Back end and mode, versions, a mode, everything: in the order of the file."""
    table = {"torch-compile >=2.14": "fixed", "torch-eager": "fixed", "jit": "changed", "*": "reproduced"}
    assert expected_outcome(table, "torch", "compile", "2.13.0+cpu") == "reproduced"
    assert expected_outcome(table, "torch", "compile", "2.14.1+cu130") == "fixed"
    assert expected_outcome(table, "torch", "compile", "2.14.0") == "fixed"
    assert expected_outcome(table, "torch", "eager", "2.13.0") == "fixed"
    assert expected_outcome(table, "jax", "jit", "0.10.2") == "changed"
    assert expected_outcome(table, "numpy", "eager", "2.4.6") == "reproduced"
    assert expected_outcome({"jax <0.11": "fixed"}, "numpy", "eager", "2.4.6") is None
    assert expected_outcome("changed", "numpy", "eager", None) == "changed"


@pytest.mark.parametrize("text", ["", "torch 2.14", "torch >=", "Torch", ">=2"])
def test_what_is_no_selector_is_refused(text):
    """The message gives an example."""
    with pytest.raises(UsageError, match="selects nothing"):
        parse_selector(text)
