"""The bulk oracle of Arb balls against mpmath and against the certified oracle."""

import math
from fractions import Fraction

import flint
import mpmath
import numpy as np
import pytest

from kl_audit.errors import OracleError
from kl_audit.formats import BF16, FP16, FP32, FP64
from kl_audit.oracle.balls import BallOps, ball, ball_truth
from kl_audit.oracle.exact import Undecided, Undefined, certify
from kl_audit.quantities import QUANTITIES, Clamp, objective

each = pytest.mark.parametrize("fmt", [FP64, FP32, FP16, BF16], ids=lambda f: f.short)
K3 = QUANTITIES["k3"]


def expm1(d):
    return mpmath.exp(d) - 1


def k3(d):
    return mpmath.exp(d) - d - 1


TRUTHS = {("k3", "value"): k3, ("k3", "gradient"): expm1, ("ratio", "value"): mpmath.exp}


def mp_fraction(value):
    sign, man, exp, _ = value._mpf_
    out = Fraction(int(man)) * Fraction(2) ** int(exp)
    return -out if sign else out


def truth(fn, *inputs):
    with mpmath.workprec(3000):
        return mp_fraction(+fn(*(mpmath.mpf(float(x)) for x in inputs)))


def total(out, i):
    """Return point i of a Sum and its error bound as Fractions."""
    unit = Fraction(2) ** (int(out.scale[i]) if out.scale is not None else 0)
    value = Fraction(float(out.hi[i])) + Fraction(float(out.lo[i]))
    return value * unit, Fraction(float(out.err[i])) * unit


def log_ratios(fmt, n, seed=0):
    """Draw log-ratios of both signs: over all exponents, and where exp is a number."""
    rng = np.random.default_rng(seed)
    low, high = math.log(fmt.smallest), math.log(math.log(fmt.largest))
    size = np.exp(np.concatenate([rng.uniform(low, high, n // 2), rng.uniform(-12, high, n // 2)]))
    values = (rng.choice([-1.0, 1.0], n) * size).astype(fmt.dtype).astype(np.float64)
    edges = [0.0, fmt.smallest, -fmt.smallest, fmt.smallest_normal, 1.0, -1.0]
    return np.concatenate([values, edges])


@each
@pytest.mark.parametrize(("name", "output"), TRUTHS)
def test_balls_contain_the_truth(fmt, name, output):
    """hi + lo is within its bound of mpmath's value, from the smallest number to overflow."""
    x = log_ratios(fmt, 150)
    out = ball_truth(QUANTITIES[name].side(output).reference, (x,), fmt)
    for i, d in enumerate(x):
        value, err = total(out, i)
        want = truth(TRUTHS[name, output], d)
        assert abs(value - want) <= err, d
        assert err <= abs(value) * Fraction(1, 2**102)


def test_float64_balls_agree_with_certify():
    """For thousands of float64 log-ratios balls and certified intervals overlap."""
    x = log_ratios(FP64, 1200, seed=3)
    reference = K3.value.reference
    out = ball_truth(reference, (x,), FP64)
    for i, d in enumerate(x.tolist()):
        value, err = total(out, i)
        exact = certify(reference, (d,), FP64)
        assert abs(value - exact) <= err + abs(exact) / Fraction(2) ** 93, d.hex()


@each
def test_balls_of_pairs_take_the_exact_difference(fmt):
    """For a pair of log-probabilities the difference is exact, also of numbers far apart."""
    rng = np.random.default_rng(11)
    p = -np.exp(rng.uniform(-9, 2, 60))
    r = np.concatenate([p[:30] * (1 + 3 * fmt.u), -np.exp(rng.uniform(-9, 2, 30))])
    p[-1], r[-1] = -1.0, -fmt.smallest
    p, r = (c.astype(fmt.dtype).astype(np.float64) for c in (p, r))
    out = ball_truth(QUANTITIES["k3-pair"].value.reference, (p, r), fmt)
    for i in range(60):
        value, err = total(out, i)
        assert abs(value - truth(lambda a, b: k3(b - a), p[i], r[i])) <= err


def test_zero_and_exact_values_are_exact():
    """k3(0) and expm1(0) are exactly zero, and exp(0) exactly one."""
    zero = np.array([0.0, -0.0])
    for side, want in ((K3.value, 0), (K3.gradient, 0), (QUANTITIES["exp"].value, 1)):
        out = ball_truth(side.reference, (zero,), FP64)
        assert [total(out, i)[0] for i in range(2)] == [want, want]


def test_smallest_float64_is_resolved():
    """k3 of the smallest float64 is a positive number beyond float64, held by its scale."""
    out = ball_truth(K3.value.reference, (np.array([5e-324]),), FP64)
    value, err = total(out, 0)
    assert err > 0
    assert abs(value - Fraction(2) ** -2149) <= 2 * err
    assert out.scale[0] < -2000


def test_beyond_every_format_saturates():
    """Far overflow is infinite with its sign, and far underflow tiny but not zero."""
    x = np.array([1e5, 1e300, -1e5, -1e300])
    out = ball_truth(QUANTITIES["exp"].value.reference, (x,), FP64)
    assert out.hi[:2].tolist() == [math.inf, math.inf]
    assert (out.hi[2:] > 0).all()
    assert (out.scale[2:] < -5000).all()
    slope = ball_truth(QUANTITIES["ratio-pair"].gradient.reference, (-x, 0 * x), FP64)
    assert slope.hi[:2].tolist() == [-math.inf, -math.inf]
    assert (slope.hi[2:] < 0).all()


def test_clamps_are_exact_and_undefined_on_the_edge():
    """A clamped gradient is 0 beyond its clamp, nan exactly on the edge and the slope inside."""
    clamped = objective(K3, Clamp((-4.0, 3.0)))
    x = np.array([-5.0, -4.0, -1.0, 2.0, 3.0, 50.0])
    out = ball_truth(clamped.gradient.reference, (x,), FP64)
    assert np.isnan(out.hi).tolist() == [False, True, False, False, True, False]
    assert out.hi[[0, 5]].tolist() == [0.0, 0.0]
    for i in (2, 3):
        value, err = total(out, i)
        assert abs(value - truth(expm1, x[i])) <= err
    values = ball_truth(clamped.value.reference, (x,), FP64)
    for i, d in enumerate(np.clip(x, -4, 3)):
        value, err = total(values, i)
        assert abs(value - truth(k3, d)) <= err


def test_precision_of_flint_is_restored():
    """The working precision of flint is as before, also after a refusal."""
    before = flint.ctx.prec
    ball_truth(K3.value.reference, (np.array([1e-300, 0.5]),), FP64)
    assert flint.ctx.prec == before
    with pytest.raises(OracleError):
        ball_truth(lambda ops, d: ops.exp(d) - ops.exp(d), (np.array([0.5]),), FP64)
    assert flint.ctx.prec == before


@pytest.mark.parametrize(
    "reference",
    [
        lambda ops, d: ops.exp(d) - ops.exp(d),
        lambda ops, d: ops.exp(d) * ops.exp(-d) - 1,
        lambda ops, d: d if ops.inside(ops.exp(d) - ops.exp(d), 0.0, 1.0) else -d,
    ],
    ids=["exp - exp", "exp(d) exp(-d) - 1", "never decided"],
)
def test_what_no_ball_resolves_is_refused(reference):
    """A zero that no ball proves to be one is refused, with the input in the message."""
    with pytest.raises(OracleError, match=r"0x1\.8000000000000p-1"):
        ball_truth(reference, (np.array([0.75]),), FP32)


@pytest.mark.parametrize("bits", [60, 104, 400])
def test_ball_holds_the_bits_asked_for(bits):
    """A ball has at least the accuracy asked for, and contains mpmath's value."""
    before = flint.ctx.prec
    try:
        for d in (1e-30, -0.3, 2.0**-50, 40.0, -700.0):
            value = ball(K3.value.reference, (d,), bits)
            assert value.rel_accuracy_bits() >= bits
            want = truth(k3, d)
            man, exp = value.mid().man_exp()
            middle = Fraction(int(man)) * Fraction(2) ** int(exp)
            assert abs(middle - want) <= abs(want) / Fraction(2) ** bits
    finally:
        flint.ctx.prec = before


def test_ball_inside_decides_or_asks_for_more():
    """Membership is decided only by a whole ball: else more bits, or nothing on an edge."""
    inside = BallOps().inside
    assert inside(flint.arb(0.5, 0.25), 0.0, 1.0) is True
    assert inside(flint.arb(3, 1), 0.0, 1.0) is False
    assert inside(flint.arb(-3, 1), 0.0, 1.0) is False
    with pytest.raises(Undecided):
        inside(flint.arb(1, 0.25), 0.0, 1.0)
    for edge in (0, 1):
        with pytest.raises(Undefined):
            inside(flint.arb(edge), 0.0, 1.0)
