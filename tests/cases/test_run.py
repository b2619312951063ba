"""Outcomes of small cases: reproduced, fixed, changed, skipped; cures; whose fault."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases.helpers import HEAD, PART, case_of, row_of, rows_of
from mpmath import mp, mpf

from kl_audit.backends import BACKENDS, Unavailable


def k3(d):
    with mp.workdps(60):
        x = mpf(float(np.float32(d)))
        return mp.exp(x) - x - 1


def test_what_the_report_says_is_reproduced():
    """The negative result, its truth, and the gradient beside it."""
    row = row_of(right='"5.000001641e-13"', reported='"-5.9604645e-08"')
    assert row.outcome == "reproduced"
    assert row.as_expected
    assert row.as_reported is True
    assert row.seen == -(2.0**-24)
    assert abs(float(row.truth) / float(k3(1e-6)) - 1) < 1e-15
    with mp.workdps(60):
        slope = float(mp.expm1(mpf(float(np.float32(1e-6)))))
    assert float(row.gradient_truth) == pytest.approx(slope, rel=1e-15)
    assert row.gradient == pytest.approx(slope, rel=0.1)
    assert row.blame == "arithmetic"
    assert row.versions["torch"].startswith("2.13")


def test_what_is_right_here_is_fixed():
    """A right result of a report of wrong ones."""
    row = row_of(inputs='{ d = "1" }')
    assert (row.outcome, row.expected, row.as_expected) == ("fixed", "reproduced", False)
    assert row_of(inputs='{ d = "1" }', expected='"fixed"').as_expected


def test_what_is_neither_is_changed():
    """Wrong, and not as reported."""
    row = row_of(inputs='{ d = "1e-4" }')
    assert (row.outcome, row.seen, row.as_expected) == ("changed", 0.0, False)
    assert row_of(inputs='{ d = "1e-4" }', expected='{ torch = "changed" }').as_expected


def test_the_tolerance_separates_fixed_from_changed():
    """expm1(d) - d is 9 % off at 1e-6."""
    assert row_of(expr='"expm1(d) - d"').outcome == "changed"
    assert row_of(expr='"expm1(d) - d"', tolerance="0.2").outcome == "fixed"


def test_a_wrong_right_is_not_as_expected():
    """The number that a file calls right is held against the certified truth."""
    row = row_of(right='"5.1e-13"')
    assert row.outcome == "reproduced"
    assert not row.as_expected
    assert row.reason.startswith("the case says that 5.1e-13 is right, the certified truth is 5.0000016414")
    assert row_of(right='"5.0e-13"').as_expected


def test_a_wrong_right_on_the_last_digit_is_seen():
    """Half a unit of the last digit given is allowed: a right number is a rounded one."""
    assert row_of(right='"5.000001641e-13"').right_holds
    assert not row_of(right='"5.000001642e-13"').right_holds


@pytest.mark.parametrize("digit", ["-5.9604645e-08", "-5.9604647e-08"])
def test_as_reported_is_bound_to_the_digits(digit):
    """The reported number of another machine, one digit off, is changed and not reproduced."""
    row = row_of(reported=f'"{digit}"', reproduced_when='"as reported"')
    assert row.outcome == ("reproduced" if digit.endswith("645e-08") else "changed")


def test_what_needs_a_gpu_is_skipped_with_the_reason():
    """A row for it, expected to be skipped."""
    (row,) = rows_of(case_of(needs='"a CUDA GPU"'))
    assert (row.outcome, row.reason, row.as_expected) == ("skipped", "needs a CUDA GPU", True)


def test_a_back_end_that_is_not_here_is_skipped(monkeypatch):
    """With its reason; skipped rows never fail."""

    def gone():
        raise Unavailable("torch is not installed (pip install 'kl-audit[torch]')")

    monkeypatch.setattr(BACKENDS["torch"], "versions", gone)
    row = row_of()
    assert (row.outcome, row.as_expected) == ("skipped", True)
    assert row.reason == "torch is not installed (pip install 'kl-audit[torch]')"


def test_numpy_has_no_gradient():
    """The row is skipped, and says why."""
    row = row_of(output='"gradient"', backends='["numpy"]')
    assert (row.outcome, row.reason) == ("skipped", "numpy has no automatic differentiation")


def test_modes_asked_for_have_no_expectation_where_the_case_names_them_not():
    """--mode all runs what the case leaves out, and does not hold it against anyone."""
    case = case_of(backends='["jax"]')
    rows = {r.mode: r for r in rows_of(case, modes=("all",))}
    assert set(rows) == {"eager", "jit"}
    assert rows["eager"].expected == "reproduced"
    assert rows["jit"].expected is None
    assert rows["jit"].as_expected


def test_back_ends_that_are_not_asked_for_are_left_out():
    """A case that has none of them says where it runs."""
    (row,) = rows_of(case_of(), backends=("jax",))
    assert (row.outcome, row.reason) == ("skipped", "runs on torch (eager), not on jax")


def test_a_cure_is_measured_under_the_same_conditions():
    """hybrid-poly cures it, expm1 does not, and one that raises says so."""
    row = row_of(
        cure='[{ formulation = "hybrid-poly" }, { formulation = "expm1" }, { expr = "log_softmax(d)" },'
        ' { expr = "exp(d) - (1 + d)" }]'
    )
    good, half, other, _same = row.cures
    assert good.cures
    assert abs(good.seen / float(k3(1e-6)) - 1) < 1e-6
    assert not half.cures
    assert half.error == pytest.approx(abs(half.seen / float(k3(1e-6)) - 1), rel=1e-6)
    assert not other.cures


def test_a_formula_that_is_another_is_no_rounding():
    """A clamp: the formula itself, without rounding, gives what is seen."""
    row = row_of(expr='"clip(exp(d) - d - 1, -10, 10)"', inputs='{ d = "5" }', reproduced_when='"below 11"')
    assert (row.seen, row.blame, row.code) == (10.0, "formula", "KLA601")
    right = row_of(inputs='{ d = "22.6" }', reproduced_when='"above 1e9"')
    assert (right.blame, right.code) == ("nothing", "KLA602")
    both = row_of(expr='"exp(d) - d - 1 + 1e-12"', inputs='{ d = "1e-6" }')
    assert both.blame == "both"


def test_a_nan_gradient_behind_a_finite_value_is_seen():
    """The truth of the clamped objective's gradient is 0."""
    clipped = '"clip(exp(d) - d - 1, -10, 10)"'
    row = row_of(
        expr=clipped, truth=clipped, quantity=None, inputs='{ d = "100" }', output='"gradient"',
        reproduced_when='"nan"',
    )  # fmt: skip
    assert row.outcome == "reproduced"
    assert math.isnan(row.gradient)
    assert (row.value, row.truth) == (10.0, 0)


def test_an_element_has_to_be_named_where_there_are_several():
    """Otherwise the row says so."""
    row = row_of(inputs='{ d = "1e-6,1" }')
    assert (row.outcome, row.as_expected) == ("changed", False)
    assert row.reason == "the value has 2 elements: the case has to say which (element)"
    assert row_of(inputs='{ d = "1e-6,1" }', element="0").outcome == "reproduced"
    assert (
        row_of(inputs='{ d = "1e-6,1" }', element="2").reason == "the value has 2 elements, and no element 2"
    )


@pytest.mark.parametrize(
    ("measure", "seen", "truth"),
    [
        ("negatives", 1, 0),
        ("zeros", 2, 1),
        ("nonfinite", 1, 1),
        ("max_rel", pytest.approx(119210.25, abs=0.01), 0),
    ],
)
def test_measures_of_all_elements(measure, seen, truth):
    """Of one negative, one zero too many, one overflow where float32 has to, and a right one."""
    row = row_of(inputs='{ d = "1e-6,1e-4,0,89,1" }', measure=f'"{measure}"', reproduced_when='"above 1e9"')
    assert (row.seen, row.truth) == (seen, truth)


def test_a_cosine_and_a_ratio_of_gradients():
    """Against the true gradient of a formula of vectors."""
    part = {
        "quantity": None, "truth": '"sum(x*x)"', "expr": '"x[0]*x[0] - x[1]*x[1]"', "inputs": '{ x = "3,4" }',
        "output": '"gradient"', "reproduced_when": '"below 0.5"',
    }  # fmt: skip
    cosine = row_of(**part, measure='"cosine"')
    assert cosine.seen == pytest.approx((9 - 16) / 25)
    assert (cosine.truth, cosine.outcome) == (1, "reproduced")
    ratio = row_of(**(part | {"expr": '"3*sum(x*x)"'}), measure='"norm_ratio"')
    assert ratio.seen == pytest.approx(3)


def test_a_gradient_of_nothing_is_right():
    """Both zero: a cosine of 1; zero for something else: 0."""
    part = {
        "quantity": None, "truth": '"sum(x)"', "expr": '"sum(sg(x))"', "inputs": '{ x = "3,4" }',
        "output": '"gradient"', "measure": '"cosine"', "reproduced_when": '"below 0.5"',
    }  # fmt: skip
    assert row_of(**part).seen == 0
    assert row_of(**(part | {"truth": '"sum(sg(x))"'})).seen == 1


def test_a_function_of_the_reader_needs_leave():
    """Case files are data: what they name is imported only where that is allowed."""
    case = case_of(expr=None, function='"torch:expm1"', quantity='"expm1"', reproduced_when='"off by 1%"')
    with pytest.raises(Exception, match="torch:expm1 is a function of a case file of yours; --allow-import"):
        rows_of(case)
    (row,) = rows_of(case, allow_import=True)
    assert row.outcome == "fixed"


def test_two_runs_give_the_same_rows():
    """Drawn inputs come from the seed of the file."""
    part = PART.replace('{ d = "1e-6" }', "{ d = { normal = [0, 1], count = 8, seed = 3 } }")
    case = case_of(part, HEAD, element="2")
    assert rows_of(case)[0].seen == rows_of(case)[0].seen
    other = case_of(part.replace("seed = 3", "seed = 4"), HEAD, element="2")
    assert rows_of(case)[0].seen != rows_of(other)[0].seen
