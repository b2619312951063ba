"""Inputs of parts: numbers, lists, draws."""

from __future__ import annotations

import numpy as np
import pytest

from kl_audit.cases.inputs import given
from kl_audit.cases.model import Made
from kl_audit.errors import UsageError
from kl_audit.formats import BF16


def made(**keys):
    return Made.model_validate(keys)


def test_numbers_are_read_exactly():
    """Decimal, hexadecimal, repeated, and plain numbers."""
    found = given({"a": "0x1.8p-20,1*3", "b": 2, "c": [1, "-inf"], "d": []})
    assert found.real == {"a": (1.5 * 2.0**-20, 1, 1, 1), "b": (2,), "c": (1, -np.inf), "d": ()}


def test_an_input_may_have_a_type_of_its_own():
    """And keeps it when the others are rounded."""
    found = given({"x": "0.1", "y": made(values="0.1", dtype="fp32"), "i": made(values=[], dtype="int"),
                   "m": made(values="1,0", dtype="bool"), "j": made(values="3", dtype="int")})  # fmt: skip
    case = found.case(BF16).inputs
    assert case["x"][0] == float(BF16.cast([0.1])[0])
    assert case["y"][0] == float(np.float32(0.1))
    assert case["i"].dtype == np.int64
    assert case["i"].size == 0
    assert case["m"].tolist() == [True, False]
    assert case["j"] == 3


def test_draws_come_from_their_seed():
    """Normal draws, draws near another input, and magnitudes of both signs."""
    found = given({
        "z": made(normal=[1, 2], count=5, seed=7),
        "w": made(normal=[0, 0.5], near="z", seed=8),
        "x": made(logspace=[1e-3, 1e-1], count=3, signs="both"),
    })  # fmt: skip
    z = np.random.default_rng(7).normal(1, 2, 5)
    assert found.real["z"] == tuple(z)
    assert found.real["w"] == tuple(z + np.random.default_rng(8).normal(0, 0.5, 5))
    np.testing.assert_allclose(found.real["x"], [-1e-1, -1e-2, -1e-3, 1e-3, 1e-2, 1e-1])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"d": made(dtype="bf16")}, "exactly one of values, normal, logspace"),
        ({"d": made(values="1", normal=[0, 1])}, "exactly one of values, normal, logspace"),
        ({"d": made(values="1", count=3)}, "count and near are for inputs that are made"),
        ({"d": made(normal=[0, 1], near="e")}, "near = 'e' is no input before it"),
        ({"e": "1,2", "d": made(normal=[0, 1], near="e", count=3)}, "3 draws, but 'e' has 2 values"),
        ({"d": made(logspace=[1, 1], count=3)}, "0 < low < high"),
        ({"d": made(normal=[0, 1], count=3, dtype="int")}, "int inputs are given by values"),
        ({"d": made(values=["x"], dtype="int")}, "expected a list of int values"),
        ({"d": "1,,2"}, "input 'd=1,,2': '' is not a number"),
    ],
)
def test_a_bad_input_is_named(inputs, message):
    """What is wrong with it, and what was expected."""
    with pytest.raises(UsageError, match=message):
        given(inputs)
