"""The prepared truth: agreement of the bulk oracles, their decisions, and errors against it."""

import math
from fractions import Fraction

import flint
import numpy as np
import pytest

from kl_audit.errors import OracleError
from kl_audit.formats import BF16, FP16, FP32, FP64
from kl_audit.oracle.exact import certify
from kl_audit.oracle.truth import Sum, TruthArray, split
from kl_audit.quantities import QUANTITIES, Clamp, Side, objective
from kl_audit.ulp import round_to_format, ulp_error

ARB = {
    ("k3", "value"): lambda x: x.exp() - x - 1,
    ("k3", "gradient"): lambda x: x.exp() - 1,
    ("ratio", "value"): lambda x: x.exp(),
    ("k2", "value"): lambda x: x * x / 2,
}
each_side = pytest.mark.parametrize(("name", "output"), ARB)
each = pytest.mark.parametrize("fmt", [FP64, FP32, FP16, BF16], ids=lambda f: f.short)
below_64 = pytest.mark.parametrize("fmt", [FP32, FP16, BF16], ids=lambda f: f.short)


def two(e):
    return Fraction(2) ** e


def stratified(fmt, n, seed=0):
    """Return all values of a 16-bit format, or n drawn evenly over exponents and log-ratios."""
    if fmt.bits == 16:
        return fmt.finite_values().astype(np.float64)
    rng = np.random.default_rng(seed)
    low, high = math.log(fmt.smallest), math.log(fmt.largest)
    near = math.log(2 * math.log(fmt.largest))
    parts = [rng.uniform(low, high, n // 3), rng.uniform(-14, near, n - n // 3)]
    size = np.minimum(np.exp(np.concatenate(parts)), fmt.largest)
    values = (rng.choice([-1.0, 1.0], n) * size).astype(fmt.dtype).astype(np.float64)
    values[:6] = [0.0, -0.0, fmt.smallest, -fmt.smallest, fmt.largest, -fmt.largest]
    return values


def arb_truth(fn, x, bits=4400):
    """Return (mantissa, exponent) of Arb's value, far more precise than any decision needs."""
    before = flint.ctx.prec
    try:
        flint.ctx.prec = bits
        value = fn(flint.arb(x))
        assert value.is_exact() or value.rel_accuracy_bits() > 2000
        man, exp = value.mid().man_exp()
        return int(man), int(exp)
    finally:
        flint.ctx.prec = before


def decisions(man, exp, fmt):
    """Return (ulp exponent, infinite, rounds to zero) by integer arithmetic."""
    least = fmt.emin - fmt.precision + 1
    if man == 0:
        return least, False, True
    a, e = abs(man), exp + abs(man).bit_length() - 1
    infinite = e > fmt.emax or (e == fmt.emax and Fraction(a) * two(exp - e) >= 2 - two(-fmt.precision))
    zero = e < least - 1 or (e == least - 1 and Fraction(a) * two(exp - e) == 1)
    return max(e, fmt.emin) - fmt.precision + 1, infinite, zero


def total(out, i):
    """Return point i of a Sum and its error bound as Fractions."""
    unit = two(int(out.scale[i]) if out.scale is not None else 0)
    value = Fraction(float(out.hi[i])) + Fraction(float(out.lo[i]))
    return value * unit, Fraction(float(out.err[i])) * unit


def beside_a_power_of_two(truth):
    """Mark where |t| and a power of two agree to p + 40 bits, as far as certify promises."""
    near = 2.0 ** -(truth.fmt.precision + 38)
    mantissa = np.frexp(np.where(np.isfinite(truth.sum.hi), np.abs(truth.sum.hi), 1.0))[0]
    lo = np.abs(truth.sum.lo) <= np.abs(truth.sum.hi) * near
    return ((mantissa - 0.5 <= near) | (1 - mantissa <= near)) & (lo | (mantissa != 0.5))


def assert_truth(truth, fn, x, indices):
    """Compare decisions and values with Arb's at some points."""
    fmt, beside = truth.fmt, beside_a_power_of_two(truth)
    certified = two(-(fmt.precision + 40))  # what settled points are known to
    for i in indices:
        man, exp = arb_truth(fn, float(x[i]))
        k, infinite, zero = decisions(man, exp, fmt)
        where = float(x[i]).hex()
        assert bool(truth.infinite[i]) is infinite, where
        assert bool(truth.rounds_to_zero[i]) is zero, where
        if infinite:
            continue
        assert beside[i] or int(truth.ulp_exponent[i]) == k, where
        if abs(exp) < 15000:
            value, err = total(truth.sum, i)
            want = Fraction(man) * two(exp)
            slack = abs(want) * certified if err == 0 else abs(want) * two(-2000)  # Arb's own
            assert abs(value - want) <= err + slack, where
    assert not truth.open.any()
    assert not truth.undefined.any()


@below_64
@each_side
def test_fast_path_and_balls_decide_alike(fmt, name, output):
    """At 10**5 points, or all of a 16-bit format, the two bulk oracles decide alike."""
    side = QUANTITIES[name].side(output)
    full = (name, output) == ("k3", "value")
    x = stratified(fmt, 100_000)[:: 1 if full else 24]
    fast = side.truth((x,), fmt)
    balls = Side(side.reference).truth((x,), fmt)
    assert np.array_equal(fast.infinite, balls.infinite)
    assert np.array_equal(fast.rounds_to_zero, balls.rounds_to_zero)
    finite = ~fast.infinite & ~beside_a_power_of_two(balls)
    assert np.array_equal(fast.ulp_exponent[finite], balls.ulp_exponent[finite])
    assert fast.infinite.any()
    assert fast.rounds_to_zero.any() or output == "gradient"
    assert not np.array_equal(fast.sum.lo, balls.sum.lo) or name == "k2"  # two ways indeed


@below_64
@each_side
def test_fast_truth_agrees_with_arb(fmt, name, output):
    """The fast path's decisions are right and its values within their bounds, on a subset."""
    x = stratified(fmt, 100_000, seed=1)
    truth = QUANTITIES[name].side(output).truth((x,), fmt)
    assert_truth(truth, ARB[name, output], x, [*range(8), *range(0, len(x), 331)])


@each
@each_side
def test_ball_truth_agrees_with_arb(fmt, name, output):
    """The balls' decisions are right and their values within their bounds, on a subset."""
    x = stratified(fmt, 3000, seed=2)[:: 31 if fmt.bits == 16 else 1]
    truth = Side(QUANTITIES[name].side(output).reference).truth((x,), fmt)
    assert_truth(truth, ARB[name, output], x, range(0, len(x), 7))


@pytest.mark.slow
@pytest.mark.parametrize("fmt", [FP16, BF16], ids=lambda f: f.short)
@each_side
def test_fast_truth_agrees_with_arb_everywhere(fmt, name, output):
    """The fast path is right for every value of a 16-bit format."""
    x = fmt.finite_values().astype(np.float64)
    truth = QUANTITIES[name].side(output).truth((x,), fmt)
    assert_truth(truth, ARB[name, output], x, range(len(x)))


def test_float64_uses_balls_and_agrees_with_certify():
    """For float64 the truth agrees with certify in its decisions and its value."""
    x = stratified(FP64, 900, seed=3)
    x = x[np.abs(x) < 1e4]
    side = QUANTITIES["k3"].value
    truth = side.truth((x,), FP64)
    for i, d in enumerate(x.tolist()):
        exact = certify(side.reference, (d,), FP64)
        k, infinite, zero = decisions(*_man_exp(exact), FP64)
        got = (bool(truth.infinite[i]), bool(truth.rounds_to_zero[i]))
        assert got == (infinite, zero), d.hex()
        if not infinite:
            assert int(truth.ulp_exponent[i]) == k, d.hex()
            value, err = total(truth.sum, i)
            assert abs(value - exact) <= err + abs(exact) / 2**93, d.hex()


def _man_exp(value):
    """Return a dyadic Fraction as (mantissa, exponent)."""
    shift = value.denominator.bit_length() - 1
    assert value.denominator == 1 << shift
    return value.numerator, -shift


@below_64
@pytest.mark.parametrize(
    "clamp",
    [Clamp((-4.0, 3.0)), Clamp(None, (0.0, 5.0))],
    ids=["input", "output"],
)
def test_clamped_objectives_decide_alike(fmt, clamp):
    """The fast path of a clamped objective agrees with balls, undefined edges included."""
    clamped = objective(QUANTITIES["k3"], clamp)
    edges = [*(clamp.input or ()), 0.0, 2.0, 2.09375, -6.0, 1.0]  # k3(2.091) is 5
    x = np.concatenate([stratified(fmt, 12_000, seed=4)[::6], edges])
    for side in (clamped.value, clamped.gradient):
        assert side.fast is not None
        fast, balls = side.truth((x,), fmt), Side(side.reference).truth((x,), fmt)
        assert np.array_equal(fast.undefined, balls.undefined)
        known = ~fast.undefined & ~beside_a_power_of_two(balls)
        assert np.array_equal(fast.infinite[known], balls.infinite[known])
        assert np.array_equal(fast.rounds_to_zero[known], balls.rounds_to_zero[known])
        assert np.array_equal(fast.ulp_exponent[known], balls.ulp_exponent[known])
        for i in np.flatnonzero(known)[::97]:
            if not fast.infinite[i]:
                (a, da), (b, db) = total(fast.sum, i), total(balls.sum, i)
                slack = abs(b) * two(-(fmt.precision + 40)) * ((da == 0) + (db == 0))
                assert abs(a - b) <= da + db + slack, float(x[i]).hex()
    assert fast.undefined.any()


@below_64
@pytest.mark.parametrize("name", ["k3-pair", "k2-pair", "k1-pair", "ratio-pair"])
@pytest.mark.parametrize("output", ["value", "gradient"])
def test_pairs_decide_alike(fmt, name, output):
    """The fast path of a pair agrees with balls where the float64 difference is rounded too."""
    rng = np.random.default_rng(5)
    p, r = (-np.exp(rng.uniform(-30, 4, 800)) for _ in range(2))
    r[:300] = p[:300] * (1 + rng.integers(-9, 9, 300) * fmt.u)
    p, r = (c.astype(fmt.dtype).astype(np.float64) for c in (p, r))
    side = QUANTITIES[name].side(output)
    fast, balls = side.truth((p, r), fmt), Side(side.reference).truth((p, r), fmt)
    assert np.array_equal(fast.infinite, balls.infinite)
    assert np.array_equal(fast.rounds_to_zero, balls.rounds_to_zero)
    finite = ~fast.infinite & ~beside_a_power_of_two(balls)
    assert np.array_equal(fast.ulp_exponent[finite], balls.ulp_exponent[finite])
    for i in np.flatnonzero(finite)[::13]:
        (a, da), (b, db) = total(fast.sum, i), total(balls.sum, i)
        slack = abs(b) * two(-(fmt.precision + 40)) * ((da == 0) + (db == 0))  # settled points
        assert abs(a - b) <= da + db + slack, (float(p[i]).hex(), float(r[i]).hex())


@pytest.mark.parametrize(
    "value",
    [Fraction(0), Fraction(1), Fraction(-3, 7), two(-2149), 1 - two(-200), two(5000) / 3,
     -(1 + two(-53) + two(-107))],
    ids=["0", "1", "-3/7", "tiny", "below 1", "huge", "two parts"],
)  # fmt: skip
def test_split_keeps_a_hundred_and_five_bits(value):
    """A Fraction becomes hi + lo with a scale, off by less than 2**-105 relative."""
    hi, lo, scale = split(value)
    back = (Fraction(hi) + Fraction(lo)) * two(scale)
    assert abs(back - value) <= abs(value) * two(-105)
    assert (hi == 0) == (value == 0)
    if value:
        assert 1 <= abs(hi) <= 2
        assert abs(lo) <= 2.0**-53


def made(fmt, values, err=0.0):
    """Prepare a truth from Fractions, with a scale, each known within err relative."""
    parts = [split(v) for v in values]
    hi, lo = (np.array([p[i] for p in parts]) for i in (0, 1))
    scale = np.array([p[2] for p in parts], dtype=np.int64)
    return TruthArray(fmt, Sum(hi, lo, np.abs(hi) * err, scale))


@each
def test_decisions_beside_their_boundaries(fmt):
    """Just below, at and above a power of two, overflow and half the smallest, each is right."""
    top = two(fmt.emax) * (2 - two(-fmt.precision))
    half = two(fmt.emin - fmt.precision)
    marks = [half, 2 * half, 3 * half, two(fmt.emin), two(0), two(-3), two(fmt.emax)]
    if fmt is not FP64:
        marks.append(top)
    values = [m * (1 + s * two(-90)) for m in marks for s in (-1, 0, 1)]
    values += [-v for v in values] + [Fraction(0)]
    truth = made(fmt, values)
    for i, value in enumerate(values):
        k, infinite, zero = decisions(*_man_exp(value), fmt)
        assert bool(truth.infinite[i]) is infinite, i
        assert bool(truth.rounds_to_zero[i]) is zero, i
        assert int(truth.ulp_exponent[i]) == k, i
    assert not truth.open.any()


@each
@pytest.mark.parametrize("scaled", [True, False])
def test_undecided_points_are_open_and_get_settled(fmt, scaled):
    """A bound that straddles a boundary leaves the point open, and settling it decides it."""
    if fmt is FP64 and not scaled:
        pytest.skip("float64 truths always carry a scale")
    top = two(fmt.emax) * (2 - two(-fmt.precision))
    half = two(fmt.emin - fmt.precision)
    marks = [top, half, two(0), two(-2), Fraction(3, 2)]
    exact = [m * (1 - two(-80)) for m in marks]
    truth = made(fmt, marks, err=2.0**-75)
    if not scaled:
        hi = np.array([float(m) for m in marks])
        truth = TruthArray(fmt, Sum(hi, 0 * hi, hi * 2.0**-60))
    assert truth.open.tolist() == [True, True, True, True, False]
    asked = []

    def certified(i):
        asked.append(i)
        return exact[i]

    assert truth.settle(certified) == 4
    assert asked == [0, 1, 2, 3]
    assert not truth.open.any()
    for i in range(4):
        k, infinite, zero = decisions(*_man_exp(exact[i]), fmt)
        got = (int(truth.ulp_exponent[i]), bool(truth.infinite[i]), bool(truth.rounds_to_zero[i]))
        assert got == (k, infinite, zero)


def test_an_open_point_without_a_certified_value_is_refused():
    """A point that the bound leaves open and certify refuses raises OracleError, no guess."""
    zero = Side(lambda ops, d: ops.exp(d) - ops.exp(d), lambda d: Sum(0 * d + 1, 0 * d, 0 * d + 1))
    with pytest.raises(OracleError):
        zero.truth((np.array([0.5]),), FP32)


@each
def test_correctly_rounded_results_are_within_half_an_ulp(fmt):
    """Errors of correctly rounded results are at most one half, and agree with exact ones."""
    x = stratified(fmt, 900, seed=6)[:: 80 if fmt.bits == 16 else 1]
    side = QUANTITIES["k3"].value
    truth = side.truth((x,), fmt)
    keep = np.flatnonzero(~truth.infinite & ~beside_a_power_of_two(truth))
    exact = {}
    for i in keep.tolist():
        man, exp = arb_truth(ARB["k3", "value"], float(x[i]))
        exact[i] = Fraction(man) * two(exp)
    got = np.zeros(len(x))
    got[keep] = [round_to_format(t, fmt) for t in exact.values()]
    for factor in (1.0, 1 + 8 * fmt.u):
        with np.errstate(over="ignore"):
            results = (got * factor).astype(fmt.dtype).astype(np.float64)
        with np.errstate(invalid="ignore"):
            ulps, relative = truth.errors(results)
        for i, t in exact.items():
            if not math.isfinite(results[i]):
                continue
            want = float(ulp_error(float(results[i]), t, fmt))
            # hi + lo of the fast path is good to 12 * 2**-53 of a value of up to 2**p ulp
            assert abs(ulps[i] - want) <= 1e-12 * abs(want) + 2.0 ** (fmt.precision - 48) / (
                1 if fmt.bits < 64 else 2.0**45
            )
            if factor == 1.0:
                assert abs(ulps[i]) <= 0.5 + 1e-6
            if t:
                off = float(abs(Fraction(float(results[i])) - t) / t)
                assert math.isclose(relative[i], off, rel_tol=1e-4, abs_tol=1e-14), x[i]
            else:
                assert relative[i] == (0.0 if results[i] == 0 else math.inf)


def test_relative_error_of_zero_results():
    """A zero for a nonzero truth is all wrong, a zero for zero right, else infinitely wrong."""
    truth = made(FP32, [two(-300), Fraction(1), Fraction(0), Fraction(0)])
    ulps, relative = truth.errors(np.array([0.0, 0.0, 0.0, 2.0**-149]))
    assert relative.tolist() == [1.0, 1.0, 0.0, math.inf]
    assert ulps[1:].tolist() == [-(2.0**23), 0.0, 1.0]
    assert -(2.0**-140) < ulps[0] <= 0
