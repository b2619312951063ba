"""Clamps found from outside, and the objectives that they make."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from audit.helpers import CLAMP_IN_OUT, CLAMP_OUT, audit, eager, findings, k3, one, threshold

from kl_audit.audit.clamps import infer_clamp
from kl_audit.audit.subject import match_names
from kl_audit.backends import BACKENDS
from kl_audit.expression import parse
from kl_audit.formats import FP32, find_format
from kl_audit.quantities import QUANTITIES, Clamp

INF = math.inf


def inferred(expr, quantity, dtype="fp32", backend="numpy"):
    """Return the clamp that the results of a formula show."""
    q, fmt, b = QUANTITIES[quantity], find_format(dtype), BACKENDS[backend]
    made = match_names(parse(expr), q.inputs, None, {}).made(b, fmt, 0)
    run = b.evaluator(made.fn, "eager", "cpu", fmt, result=made.result)
    with np.errstate(all="ignore"):
        return infer_clamp(run, q, fmt, made.result)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    ("expr", "quantity", "clamp"),
    [
        # tunix, slime: the result
        (CLAMP_OUT, "k3", Clamp(output=(-10, 10))),
        ("minimum(exp(d) - d - 1, 10)", "k3", Clamp(output=(-10, 10))),
        # verl: both; the result's decides
        (CLAMP_IN_OUT, "k3", Clamp(output=(-10, 10))),
        # OpenRLHF: of a pair
        ("d = ref - policy; clip(exp(d) - d - 1, -10, 10)", "k3-pair", Clamp(output=(-10, 10))),
        ("clip(policy - ref, -10, 10)", "k1-pair", Clamp(output=(-10, 10))),
        # compose-rl: the log-ratio
        ("c = clip(d, -10, 10); exp(c) - c - 1", "k3", Clamp(input=(-10, 10))),
        ("c = clip(d, -5, 3); exp(c) - c - 1", "k3", Clamp(input=(-5, 3))),
        ("c = minimum(d, 10); exp(c) - c - 1", "k3", Clamp(input=(-INF, 10))),
        ("c = maximum(d, -5); c*c/2", "k2", Clamp(input=(-5, INF))),
        ("clip(d*d/2, 0, 10)", "k2", Clamp(output=(-10, 10))),
        ("clip(-d, -10, 10)", "k1", Clamp(output=(-10, 10))),
        ("minimum(-d, 3)", "k1", Clamp(output=(-INF, 3))),
        ("maximum(-d, -3)", "k1", Clamp(output=(-3, INF))),
    ],
)  # fmt: skip
def test_public_clamps_are_found_from_outside(expr, quantity, clamp, dtype):
    """The clamps of public trainers are inferred from results alone, in every dtype."""
    assert inferred(expr, quantity, dtype) == clamp


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_the_clip_of_ppo_is_found_as_the_dtype_has_it(dtype):
    """The ratio clipped to [0.8, 1.2]: the limits are 0.8 and 1.2 as rounded to the dtype."""
    fmt = find_format(dtype)
    low, high = (float(fmt.cast([x])[0]) for x in (0.8, 1.2))
    assert inferred("clip(exp(d), 0.8, 1.2)", "ratio", dtype) == Clamp(output=(low, high))
    assert inferred("minimum(exp(d), 1.2)", "ratio", dtype) == Clamp(output=(-INF, high))
    assert inferred("maximum(exp(d), 0.8)", "ratio", dtype) == Clamp(output=(low, INF))


def test_a_clamp_that_overflow_hides_is_one_sided():
    """exp(20) is infinite in float16: the upper half of a clip to [-20, 20] does nothing there."""
    expr = "c = clip(d, -20, 20); exp(c) - c - 1"
    assert inferred(expr, "k3", "fp16") == Clamp(input=(-20, INF))
    assert inferred(expr, "k3", "fp32") == Clamp(input=(-20, 20))


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    ("expr", "quantity"),
    [("exp(d) - d - 1", "k3"), ("expm1(d) - d", "k3"), ("exp(d)", "ratio"), ("-d", "k1"), ("d*d/2", "k2"),
     ("maximum(exp(d) - d - 1, 0)", "k3")],
)  # fmt: skip
def test_no_clamp_is_seen_where_there_is_none(expr, quantity, dtype):
    """Underflow of exp, overflow to infinity and a floor at the quantity's own least value are no clamps."""
    assert inferred(expr, quantity, dtype) is None


@pytest.mark.parametrize(("expr", "quantity"), [("d*0", "k3"), ("exp(d*0)", "ratio"), ("0*d", "k1")])
def test_a_constant_is_no_clamp(expr, quantity):
    """A function that never changes computes nothing: it has no clamp, and fails."""
    rows = eager(expr=expr, quantity=quantity, grid="0.1:1:20", explain=False)
    assert [r.judgement.verdict for r in rows] == ["fail", "fail"]
    assert inferred(expr, quantity) is None


@pytest.mark.parametrize(("dtype", "form"), [("fp32", "exp(c) - c - 1"), ("bf16", "c*c*(0.5 + c/6)")])
def test_a_narrow_clamp_is_found_at_its_own_edge(dtype, form):
    """A log-ratio clipped to [-0.03, 0.03] is a clamp there: not at 0.0625, and not of the result at 0."""
    clamp = inferred(f"c = clip(d, -0.03, 0.03); {form}", "k3", dtype)
    ends = clamp.reach(QUANTITIES["k3"])
    assert ends == pytest.approx((-0.03, 0.03), rel=2.0**-7)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_s1_with_the_clamp(backend):
    """Clamp after exp at d = 100: the value is 10, right; the default grid finds the gradient NaN."""
    rows = eager(expr=CLAMP_OUT, quantity="k3", backends=backend, only="gradient", explain=False)
    slope = one(rows, "gradient")
    assert "KLA401" in findings(slope, "error")
    assert str(slope.row.formulation.clamp) == "result clipped to [-10, 10]"
    assert slope.row.tally.nan.first.inputs[0] > 88.7
    value, slope = eager(expr=CLAMP_OUT, quantity="k3", backends=backend, at="d=100")
    assert value.judgement.verdict == "pass"
    assert [w.got for _, w in value.judgement.worst] == [10.0]
    assert slope.judgement.verdict == "fail"
    witness = findings(slope, "error")["KLA401"].witness
    assert witness.inputs == (100.0,)
    assert math.isnan(witness.got)


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_a_double_clamp_leaves_dead_zones(dtype):
    """verl's clamps: the gradient is exactly 0 from 2.6109 up and from -11 down, and both are told."""
    rows = eager(expr=CLAMP_IN_OUT, quantity="k3", dtypes=dtype, per_decade=100)
    value, slope = one(rows), one(rows, "gradient")
    told = findings(value, "note")["KLA601"].message
    assert "not rounding: result clipped to [-10, 10]" in told
    assert "leaves k3 for log-ratio > 2.6109 and < -11" in told
    zeros = [f.message for f in slope.judgement.findings if f.code == "KLA402" and f.level == "note"]
    assert any("exactly 0 for log-ratio > 2.6109 and < -11, by the clamp" in m for m in zeros)
    fmt = find_format(dtype)
    for sign in (1, -1):
        found = threshold(slope, "first-zero", sign)
        assert found.got == 0
        before = float(np.nextafter(fmt.cast([found.x]), fmt.cast([0.0]))[0])
        # the clamp acts where k3, rounded, reaches 10: within an ulp of the numbers around the root
        assert k3(found.x) > 10 * (1 - 4 * fmt.u)
        assert k3(before) < 10 * (1 + 4 * fmt.u)


def test_beyond_the_clamp_the_gradient_is_0_and_right():
    """The clamped objective is flat there: 0 is the true gradient of it, and no error."""
    value, slope = eager(expr=CLAMP_IN_OUT, quantity="k3", at="d=3,15,-12,-19")
    assert value.judgement.verdict == slope.judgement.verdict == "pass"
    assert {w.got for _, w in slope.judgement.worst} == {0.0}


def test_without_the_clamp_the_same_function_fails():
    """--clamp none holds the function against k3 itself."""
    rows = eager(expr=CLAMP_IN_OUT, quantity="k3", at="d=3", clamp="none")
    assert [r.judgement.verdict for r in rows] == ["fail", "fail"]
    assert "KLA402" in findings(one(rows, "gradient"), "error")


def test_a_clamp_that_is_told_is_taken():
    """--clamp out:-10,10 and in:-20,20 set the objective; a function without one fails beyond."""
    for clamp, at in (("out:-10,10", "d=5"), ("in:-20,20", "d=25")):
        (row,) = eager(expr="exp(d) - d - 1", quantity="k3", clamp=clamp, at=at, only="value")
        assert row.judgement.verdict == "fail"
    (row,) = eager(expr=CLAMP_OUT, quantity="k3", clamp="out:-10,10", at="d=5", only="value")
    assert row.judgement.verdict == "pass"


def test_a_clamp_that_is_told_holds_at_infinity_too():
    """clip(k3, -10, 10) is 10 at d = 100 and at inf, and its gradient at 100 is NaN in torch, not 0."""
    rows = eager(expr=CLAMP_OUT, quantity="k3", clamp="out:-10,10", at="d=100,-inf")
    assert "KLA202" not in findings(one(rows))
    assert "KLA401" in findings(one(rows, "gradient"), "error")


def roots(limit):
    """The two log-ratios at which k3 is ``limit``."""
    with mpmath.workdps(30):
        f = lambda x: mpmath.exp(x) - x - 1 - limit  # noqa: E731
        low = mpmath.findroot(f, (-limit - 1, -limit - mpmath.mpf("0.5")), solver="anderson")
        return float(low), float(mpmath.findroot(f, mpmath.log(limit + 3)))


@pytest.mark.parametrize("limit", [1.5, 5, 10, 100])
def test_reach_is_where_k3_meets_the_limit(limit):
    """The ends of a clamp of the result are the roots of k3(d) = limit."""
    assert Clamp(output=(-limit, limit)).reach(QUANTITIES["k3"]) == pytest.approx(roots(limit), rel=1e-12)


def test_reach_of_a_double_clamp_is_the_inner_one():
    """The log-ratio's clamp counts where the result's is not reached before."""
    assert Clamp((-20, 20), (-10, 10)).reach(QUANTITIES["k3"]) == pytest.approx(roots(10), rel=1e-12)
    assert Clamp((-2, 1), (-10, 10)).reach(QUANTITIES["k3"]) == (-2, 1)
    assert Clamp((-20, 1), (-10, 10)).reach(QUANTITIES["k3"]) == pytest.approx((roots(10)[0], 1))


def test_reach_of_other_quantities():
    """k1 ends at its limits, the ratio at their logarithms, k2 at the roots of twice them."""
    assert Clamp(output=(-3, 10)).reach(QUANTITIES["k1"]) == pytest.approx((-10, 3), rel=1e-12)
    low, high = Clamp(output=(0.8, 1.2)).reach(QUANTITIES["ratio"])
    assert (low, high) == pytest.approx((float(mpmath.log(0.8)), float(mpmath.log(1.2))), rel=1e-12)
    assert Clamp(output=(-8, 8)).reach(QUANTITIES["k2"]) == pytest.approx((-4, 4), rel=1e-12)
    assert Clamp(output=(-INF, 3)).reach(QUANTITIES["k1"]) == pytest.approx((-3, INF))


def test_a_clamp_of_a_pair_is_found_by_its_difference():
    """The pair is put along d with one log-probability at 0: the clamp is the same, and so are the notes."""
    expr = "d = ref - policy; clip(exp(d) - d - 1, -10, 10)"
    rows = audit(expr=expr, quantity="k3-pair", backends="torch", modes="eager", per_decade=50, explain=False)
    assert "leaves k3 for log-ratio > 2.6109 and < -11" in findings(one(rows))["KLA601"].message
    assert rows[0].row.block.fmt is FP32
