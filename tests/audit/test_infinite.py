"""Quantities of the log-ratio as formulas on arrays, which infinite inputs need."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from audit.helpers import eager, one

from kl_audit.audit.infinite import problem_at_infinity
from kl_audit.formats import FP32
from kl_audit.oracle.certified import recompute
from kl_audit.quantities import QUANTITIES, Clamp, objective

INF = math.inf
CLAMPED = [n for n, q in QUANTITIES.items() if q.base_name in ("k1", "k2", "k3", "ratio")]
CASES = [(n, None) for n in QUANTITIES] + [
    (n, c) for n in CLAMPED for c in (Clamp(input=(-1.5, 1.25)), Clamp(output=(-0.5, 1.5)))
]


def at(name):
    """Points of a quantity: log-ratios on both sides of 0 and of the clamps; all negative where it asks."""
    for d in (-3.0, -2.0, -0.75, 0.375, 1.0, 2.5):
        q = QUANTITIES[name]
        if "policy" in q.inputs:
            yield (-4.0, -4.0 + d, *(-4.0,) * (len(q.inputs) - 2))
        else:
            yield (-abs(d) if name == "log1mexp" else d,)


def agree(a, b):
    return abs(Fraction(a) - Fraction(b)) <= abs(Fraction(b)) / 2**40


@pytest.mark.parametrize(("name", "clamp"), CASES, ids=lambda c: str(c).replace(" ", "-"))
def test_the_formula_is_the_objective(name, clamp):
    """At finite inputs the formula, its clamp and its derivatives are those of the quantity's own oracle."""
    quantity = objective(QUANTITIES[name], clamp)
    problem = problem_at_infinity(QUANTITIES[name], clamp)
    for inputs in at(name):
        columns = {n: np.array([x]) for n, x in zip(quantity.inputs, inputs, strict=True)}
        (value,) = recompute(problem.reference, columns, [0], FP32)
        assert agree(value, quantity.value.exact(inputs, FP32)), inputs
        for wrt, role in enumerate(quantity.inputs[: 1 + len(quantity.others)]):
            (slope,) = recompute(problem.reference, columns, [0], FP32, role)
            assert agree(slope, quantity.side("gradient", wrt).exact(inputs, FP32)), (inputs, role)


@pytest.mark.parametrize("name", [n for n, q in QUANTITIES.items() if len(q.inputs) == 1])
def test_at_infinity_the_formula_is_the_limit(name):
    """At -inf and inf the value is the limit that the quantity states.

    log1mexp ends at 0, and the weight exp(p - stop_gradient(p)) is no number where p is infinite.
    """
    quantity = QUANTITIES[name]
    problem = problem_at_infinity(quantity, None)
    for x, limit in zip((-INF, INF), quantity.value.limits, strict=True):
        if name == "log1mexp" and x > 0:
            continue
        (value,) = recompute(problem.reference, {quantity.inputs[0]: np.array([x])}, [0], FP32)
        if name == "weighted-k3":
            assert math.isnan(value)
        else:
            assert float(value) == limit, (x, value)


@pytest.mark.parametrize(
    ("clamp", "values", "slopes"),
    [
        (None, (INF, INF), (-1, INF)),
        (Clamp(input=(-2.0, 1.0)), (math.exp(-2) + 1, math.exp(1) - 2), (0, 0)),
        (Clamp(output=(-10.0, 10.0)), (10, 10), (0, 0)),
    ],
    ids=str,
)  # fmt: skip
def test_k3_at_both_ends(clamp, values, slopes):
    """k3 grows without limit on both sides; under a clamp it is flat there."""
    problem = problem_at_infinity(QUANTITIES["k3"], clamp)
    for x, value, slope in zip((-INF, INF), values, slopes, strict=True):
        column = {"d": np.array([x])}
        (found,) = recompute(problem.reference, column, [0], FP32)
        assert float(found) == pytest.approx(value, rel=1e-15)
        (found,) = recompute(problem.reference, column, [0], FP32, "d")
        assert float(found) == slope


def test_naive_k3_is_nan_at_inf():
    """inf - inf: the naive form is NaN where k3 is inf, and right at -inf."""
    rows = eager(expr="exp(d) - d - 1", quantity="k3", at="d=inf,-inf", only="value", explain=False)
    assert one(rows).tried.verdict == "fail"
    assert one(rows).tried.nan == 1


def test_a_constant_of_a_formula_is_known_at_infinity():
    """beta keeps the value that --with gave: 0.5 exp(d) is 0 and inf at the ends."""
    rows = eager(expr="beta*exp(d)", with_=("beta=0.5",), at="d=-inf,inf,2", explain=False)
    assert [r.tried.verdict for r in rows] == ["pass", "pass"]
    assert one(rows).tried.points == 3


def test_the_weight_is_not_clamped_with_the_base():
    """weighted-k3 under a clip of d to [-2, 2]: at -inf the gradient of the weight is left, -k3(-2)."""
    text = "c = clip(d, -2, 2); exp(sg(d) - d) * (exp(c) - 1 - c)"
    problem = problem_at_infinity(QUANTITIES["weighted-k3"], Clamp(input=(-2.0, 2.0)))
    (slope,) = recompute(problem.reference, {"d": np.array([-30.0])}, [0], FP32, "d")
    assert float(slope) == pytest.approx(-(math.exp(-2) + 1), rel=1e-15)
    rows = eager(expr=text, quantity="weighted-k3", clamp="in:-2,2", at="d=-30", explain=False)
    assert one(rows, "gradient").judgement.verdict == "pass"
