"""A formula as the truth: its value and derivatives in exact arithmetic, against mpmath.diff."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from audit.helpers import eager, figures, findings, one

from kl_audit.audit.expressed import quantity_of
from kl_audit.expression import parse
from kl_audit.formats import FP32, FP64

exp, log, expm1, log1p = mpmath.exp, mpmath.log, mpmath.expm1, mpmath.log1p
sigmoid = lambda x: 1 / (1 + exp(-x))  # noqa: E731

FORMULAS = [
    ("exp(d) - d - 1", lambda d: exp(d) - d - 1, [(1e-8,), (-3.5,), (0.7,), (20.0,)]),
    ("expm1(d)**2 / 2", lambda d: (exp(d) - 1) ** 2 / 2, [(1e-6,), (-2.0,), (3.0,)]),
    ("log1p(exp(-d))", lambda d: log(1 + exp(-d)), [(-40.0,), (0.5,), (40.0,)]),
    ("sigmoid(d)*log(sigmoid(d))", lambda d: sigmoid(d) * log(sigmoid(d)), [(-3.0,), (0.25,), (9.0,)]),
    ("softplus(d) - sqrt(1 + d*d)", lambda d: log(1 + exp(d)) - mpmath.sqrt(1 + d * d), [(-2.0,), (5.0,)]),
    ("where(d > 1, d*d, exp(d))", lambda d: d * d if d > 1 else exp(d), [(0.5,), (1.5,), (-4.0,)]),
    ("clip(d, -2, 3) * d", lambda d: min(max(d, -2), 3) * d, [(-5.0,), (1.0,), (7.0,)]),
    ("abs(d - 2)", lambda d: abs(d - 2), [(1.0,), (2.5,)]),
    ("exp(policy - old) * (exp(reference - policy) - (reference - policy) - 1)",
     lambda p, o, r: exp(p - o) * (exp(r - p) - (r - p) - 1), [(-1.5, -1.25, -2.0), (-3.0, -1.0, -0.5)]),
    ("min(a*b, a + b) / max(a, 2)", lambda a, b: min(a * b, a + b) / max(a, 2), [(1.0, 3.0), (5.0, 0.5)]),
    ("x = a - b; x*x*x + a/b", lambda a, b: (a - b) ** 3 + a / b, [(1.0, 3.0), (-0.125, 8.0)]),
]  # fmt: skip


def derivative(f, point, i):
    """The partial derivative by input number i."""
    order = tuple(int(k == i) for k in range(len(point)))
    return mpmath.diff(f, tuple(map(mpmath.mpf, point)), order)


@pytest.mark.parametrize(("text", "f", "points"), FORMULAS, ids=[t for t, _, _ in FORMULAS])
def test_value_and_every_derivative_are_those_of_mpmath(text, f, points):
    """Bulk and exact truth of the value and of each derivative agree with mpmath to 1e-15 and 1e-20."""
    q = quantity_of(parse(text), {})
    columns = tuple(np.array(c) for c in zip(*points, strict=True))
    with mpmath.workdps(60):
        for wrt in range(-1, len(q.inputs)):
            side = q.value if wrt < 0 else q.side("gradient", wrt)
            total = side.truth(columns, FP64).sum
            scale = np.zeros(len(points), dtype=int) if total.scale is None else total.scale
            for k, point in enumerate(points):
                want = f(*map(mpmath.mpf, point)) if wrt < 0 else derivative(f, point, wrt)
                bulk = (mpmath.mpf(total.hi[k]) + mpmath.mpf(total.lo[k])) * mpmath.mpf(2) ** int(scale[k])
                assert abs(bulk - want) <= 1e-15 * abs(want)
                exact = side.exact(point, FP64)
                exact = mpmath.mpf(exact.numerator) / exact.denominator
                assert abs(exact - want) <= mpmath.mpf("1e-18") * abs(want)


@pytest.mark.parametrize(
    ("text", "kink", "slopes"),
    [
        ("abs(d)", 0.0, (-1.0, 1.0)),
        ("maximum(d, 0.5)", 0.5, (0.0, 1.0)),
        ("minimum(d, 0.5)", 0.5, (1.0, 0.0)),
        ("clip(d*d, 0, 1)", 1.0, (None, 0.0)),
        ("abs(2*d - 1) + d", 0.5, (-1.0, 3.0)),
    ],
)
def test_a_derivative_is_undefined_at_its_kink_alone(text, kink, slopes):
    """At the kink there is no derivative; its neighbours in the format, and all others, have theirs."""
    q = quantity_of(parse(text), {})
    k = np.float32(kink)
    below, above = np.nextafter(k, np.float32(-np.inf)), np.nextafter(k, np.float32(np.inf))
    d = np.array([-3.0, below, k, above, 7.0], dtype=np.float32).astype(np.float64)
    truth = q.gradient.truth((d,), FP32)
    assert truth.undefined.tolist() == [False, False, True, False, False]
    assert np.isnan(truth.sum.hi[2])
    for i, want in ((1, slopes[0]), (3, slopes[1])):
        scale = 0 if truth.sum.scale is None else truth.sum.scale[i]
        got = np.ldexp(truth.sum.hi[i], scale)
        assert got == (2.0 * float(below) if want is None else want)


def test_a_where_has_the_derivative_of_the_branch_taken():
    """where() chooses, exactly: at the boundary the derivative is that of the branch that it gives."""
    q = quantity_of(parse("where(d > 0.5, 2*d, d)"), {})
    assert [q.gradient.exact((x,), FP32) for x in (0.25, 0.5, 0.75)] == [1, 1, 2]
    truth = q.gradient.truth((np.array([0.25, 0.5, 0.75]),), FP32)
    assert not truth.undefined.any()


def test_many_kinks_among_many_points_are_told_apart():
    """Of 101 points with 21 kinks exactly the 21 are undefined."""
    q = quantity_of(parse("abs(d - 1)"), {})
    d = np.where(np.arange(101) % 5 == 0, 1.0, np.arange(101) / 8 + 0.0625)
    truth = q.gradient.truth((d,), FP32)
    assert np.array_equal(truth.undefined, d == 1)
    assert truth.undefined.sum() == 21
    assert np.array_equal(np.sign(truth.sum.hi[d != 1]), np.sign(d[d != 1] - 1))


def test_a_constant_is_exactly_what_was_given():
    """--with beta=0.1 is the float64 number 0.1 in the truth, and 0.1 rounded to dtype in the candidate."""
    q = quantity_of(parse("beta*d"), {"beta": 0.1})
    assert q.inputs == ("d",)
    assert q.value.exact((3.0,), FP32) == 3 * Fraction(0.1)
    (row,) = eager(expr="beta*d", truth="beta*d", with_="beta=0.1", at="d=3", only="value")
    error = abs(Fraction(float(np.float32(0.1) * np.float32(3))) - 3 * Fraction(0.1)) / (3 * Fraction(0.1))
    assert figures(row).core_rel == pytest.approx(float(error), rel=1e-12)


def test_a_detached_part_has_its_value_and_no_derivative():
    """stop_gradient keeps the value: exp(sg(d) - d) is 1, with the derivative -1, in exact arithmetic."""
    q = quantity_of(parse("exp(stop_gradient(d) - d)"), {})
    assert q.value.exact((0.7,), FP32) == 1
    assert q.gradient.exact((0.7,), FP32) == -1


def test_a_cast_is_the_identity_in_exact_arithmetic():
    """The truth of bfloat16(d) * d is d*d: what a cast rounds is the candidate's error."""
    q = quantity_of(parse("bfloat16(d) * d"), {})
    x = 1 + 2.0**-12
    assert float(q.value.exact((x,), FP64)) == x * x


def test_the_gradient_by_each_input_is_a_row():
    """A formula of three inputs has three gradient rows, each right and each named."""
    rows = eager(expr="a*b + exp(c)", at="a=1.5,2 b=-3,0.25 c=0.5,-1", only="gradient")
    assert [r.row.block.what for r in rows] == [f"expression gradient by {n}" for n in "abc"]
    assert [r.judgement.verdict for r in rows] == ["pass"] * 3
    by_a, by_b, by_c = ({w.inputs: w.got for _, w in r.judgement.worst} for r in rows)
    first, second = (1.5, -3.0, 0.5), (2.0, 0.25, -1.0)
    assert (by_a[first], by_a[second]) == (-3.0, 0.25)
    assert (by_b[first], by_b[second]) == (1.5, 2.0)
    assert by_c[first] == pytest.approx(math.exp(0.5), rel=1e-6)


def test_a_wrong_formula_is_found_by_the_truth_formula():
    """--truth and --expr differ by a sign: the value fails, and so does its gradient."""
    rows = eager(expr="exp(d) + d - 1", truth="exp(d) - d - 1", at="d=0.5,2", explain=False)
    assert [figures(r).verdict for r in rows] == ["fail", "fail"]
    value, slope = one(rows), one(rows, "gradient")
    assert "KLA001" in findings(value, "error")
    assert "KLA403" in findings(slope, "error")
    error = 2 * 0.5 / (mpmath.exp(0.5) - 1.5)
    assert figures(value).core_rel == pytest.approx(float(error), rel=1e-6)
