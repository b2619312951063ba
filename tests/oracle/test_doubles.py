"""The float64 oracle of exp, expm1 and k3: its proven bound against Arb and mpmath."""

import math
from fractions import Fraction

import flint
import mpmath
import numpy as np
import pytest

from kl_audit.formats import BF16, FP16, FP32
from kl_audit.oracle import doubles

FUNCTIONS = {
    "exp": (doubles.exp, lambda x: x.exp()),
    "expm1": (doubles.expm1, lambda x: x.exp() - 1),
    "k3": (doubles.k3, lambda x: x.exp() - x - 1),
}
function = pytest.mark.parametrize("name", FUNCTIONS)
SMALLEST = 2.0**-1074
#: What Arb's own values are good to, below.
ARB_ACCURACY = Fraction(2) ** 1150


def arb_fractions(name, xs, bits=1500):
    """Return Arb's values as Fractions, off by less than 2**-1150 relative."""
    fn, before = FUNCTIONS[name][1], flint.ctx.prec
    out = []
    try:
        flint.ctx.prec = bits
        for x in xs:
            value = fn(flint.arb(x))
            assert value.is_exact() or value.rel_accuracy_bits() > 1150
            man, exp = (int(v) for v in value.mid().man_exp())
            out.append(Fraction(man) * Fraction(2) ** max(min(exp, 4000), -4000))
    finally:
        flint.ctx.prec = before
    return out


def stratified(fmt, n, seed):
    """Draw values of the format evenly over the exponents, and over those of log-ratios."""
    rng = np.random.default_rng(seed)
    low, high = math.log(fmt.smallest), math.log(fmt.largest)
    size = np.exp(np.concatenate([rng.uniform(low, high, n // 3), rng.uniform(-14, 7, n - n // 3)]))
    size = np.minimum(size, fmt.largest)
    return (rng.choice([-1.0, 1.0], n) * size).astype(fmt.dtype).astype(np.float64)


def hard(fmt):
    """Return inputs where the algorithm changes: the seam, k log 2, halfway, the limits."""
    points = [doubles.SMALL, math.log(2) / 2, 745.0, 744.4, 709.7, 709.79, 708.4, 88.7, 0.0]
    points += [k * math.log(2) for k in range(1, 128, 3)]
    points += [(k + 0.5) * math.log(2) for k in range(0, 128, 3)]
    values = np.array([p * (1 + i * fmt.u) for p in points for i in range(-3, 4)])
    values = np.concatenate([values, -values, [fmt.smallest, -fmt.smallest]])
    return values.astype(fmt.dtype).astype(np.float64)


def check(name, x, wide=False):
    """Assert that each value is within its bound of Arb's; return the relative bounds."""
    out = FUNCTIONS[name][0](x, wide)
    assert out.scale is None
    bounds = []
    for i, want in enumerate(arb_fractions(name, x.tolist())):
        hi, lo, err = (float(a[i]) for a in (out.hi, out.lo, out.err))
        if math.isinf(hi):
            assert want >= Fraction(2) ** 1023, float(x[i]).hex()
            continue
        off = abs(Fraction(hi) + Fraction(lo) - want) - abs(want) / ARB_ACCURACY
        assert off <= Fraction(err), (float(x[i]).hex(), float(off), err)
        bounds.append(err / abs(hi) if hi else 0.0)
    return np.array(bounds)


@function
@pytest.mark.parametrize("fmt", [FP32, FP16, BF16], ids=lambda f: f.short)
def test_error_is_within_the_proven_bound(name, fmt):
    """hi + lo differs from Arb's value by at most err, over all exponents and at the seams."""
    check(name, np.concatenate([stratified(fmt, 2_500, seed=1), hard(fmt)]))


@function
def test_error_of_wide_inputs_is_within_the_bound(name):
    """With inputs of 53 bits, as a difference of two has, the wider bound holds."""
    rng = np.random.default_rng(2)
    x = rng.choice([-1.0, 1.0], 2500) * np.exp(rng.uniform(-40, 6.6, 2500))
    check(name, x, wide=True)
    seams = np.array([doubles.SMALL, math.log(2) / 2, math.log(2), 1.5 * math.log(2)])
    near = np.concatenate([seams + i * np.spacing(seams) for i in range(-20, 21)])
    check(name, np.concatenate([near, -near]), wide=True)


@function
def test_bound_is_tight_enough_for_float32(name):
    """The bound is small where float32 needs it: 20 bits better than its unit roundoff."""
    x = stratified(FP32, 3000, seed=4)
    x = x[(np.abs(x) > 1e-18) & (x > -80) & (x < 88)]
    assert check(name, x).max() < 2.0**-20 * FP32.u


@pytest.mark.parametrize("x", [1e-20, -1e-12, 2.0**-26, 0.25, -0.3466, 0.3467, -3.0, 50.0, -300.0])
@function
def test_error_is_within_the_bound_of_mpmath(name, x):
    """The bound holds against mpmath too, for values that are checked one by one."""
    x = float(np.float32(x))
    out = FUNCTIONS[name][0](np.array([x]))
    with mpmath.workprec(1500):
        d = mpmath.mpf(x)
        want = {"exp": mpmath.exp(d), "expm1": mpmath.exp(d) - 1, "k3": mpmath.exp(d) - 1 - d}
        off = abs(mpmath.mpf(float(out.hi[0])) + mpmath.mpf(float(out.lo[0])) - want[name])
        assert off <= mpmath.mpf(float(out.err[0]))


def test_k3_keeps_what_expm1_minus_x_loses():
    """At 2**-40 the naive float64 form is wrong by thousands of u of float32, this one is not."""
    x = np.float32(2.0**-40) * np.linspace(1, 1.01, 200).astype(np.float32)
    x = x.astype(np.float64)
    want = arb_fractions("k3", x.tolist())
    naive, got = (np.expm1(x) - x).tolist(), doubles.k3(x).hi.tolist()
    assert max(abs(Fraction(a) - t) / t for a, t in zip(naive, want, strict=True)) > 1e3 * 2.0**-24
    assert max(abs(Fraction(a) - t) / t for a, t in zip(got, want, strict=True)) < 2.0**-50


def test_beyond_float64_is_infinite_or_tiny():
    """exp overflows to inf and underflows to a positive number, and k3 of -big is big - 1."""
    x = np.array([710.0, 1e4, 3.4e38, -746.0, -1e4, -3.4e38])
    e, m, k = doubles.exp(x), doubles.expm1(x), doubles.k3(x)
    for out in (e, m, k):
        assert np.isposinf(out.hi[:3]).all()
        assert not np.isnan(out.lo).any()
        assert np.isfinite(out.err).all()
    assert ((e.hi[3:] > 0) & (e.hi[3:] <= SMALLEST)).all()
    assert m.hi[3:].tolist() == [-1.0, -1.0, -1.0]
    assert k.hi[3:].tolist() == [745.0, 9999.0, 3.4e38]


def test_exact_values_at_zero():
    """At both zeros exp is 1, and expm1 and k3 are 0, without any error."""
    x = np.array([0.0, -0.0])
    for name, want in (("exp", 1.0), ("expm1", 0.0), ("k3", 0.0)):
        out = FUNCTIONS[name][0](x)
        assert (out.hi + out.lo).tolist() == [want, want]
        assert out.err.tolist() == [0.0, 0.0]


@pytest.mark.slow
@function
@pytest.mark.parametrize("fmt", [FP16, BF16], ids=lambda f: f.short)
def test_every_narrow_input_is_within_the_bound(name, fmt):
    """For every finite value of a 16-bit format the bound holds."""
    check(name, fmt.finite_values().astype(np.float64))
