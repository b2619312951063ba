"""exp, expm1 and k3 of narrow inputs in vectorised float64, with a proven bound on every value.

Only +, -, * and rint of IEEE float64 are used, so nothing depends on the machine's math library.
Let v = 2**-53.  Inputs are float64 numbers; ``err`` bounds |hi + lo - truth|.

Small |x| <= 0.3466 (just above ln(2)/2), by k3 = h (1 + w), h = x^2/2, w = sum_{n>=1} 2 x^n/(n+2)!:

* Horner to degree 16.  The tail is below 2 |x|^17/19! * 1.02 < 2**-84 |w|.  With |x| <= 0.3466 each
  step s <- c + x s keeps |x s| <= 0.1 |c|: rounding of x s and of the sum and the inherited error give
  a relative error of at most 1.2 v + 0.1 (v + error of s), so below 1.5 v; c itself is rounded (v) and
  w = x s rounds once more: |w| is known within 4 v |w|.
* h is exact when x has at most 26 bits; a difference of two inputs may have 53, and then h errs by v h.
  g = h w is known within 6 v |h w|.  hi + lo = h + g by Fast2Sum is exact (|g| < |h|).
  So err = 6 v |h w| + 2 v h [wide].
* expm1 = x + k3 and exp = 1 + x + k3: (hi, lo) by Fast2Sum of x and k3.hi (|k3| < 0.25 |x|), lo + k3.lo
  rounded: v |lo|, doubled here; err grows by that.  For exp the sum of 1 and expm1.hi likewise.

Larger |x|, by k = rint(x / ln 2), r = (x - k H) - k L with ln 2 = H + L, H of 32 bits:

* |k| < 2**11, so k H is exact.  x is a multiple of 2**-54 (|x| >= 2**-2) and of its own last place, and
  |x - k H| < 0.36, so x - k H is exact.  k L errs by v |k L| < 2**-24 v and L itself by less; the
  subtraction errs by v |r|: |r| <= 0.3468 is known within 0.36 v.
* m = expm1(r) by the small case: within 1.42 * 0.36 v + 4 v |m| (its lo is dropped) and |m| <= 0.42:
  within 2.2 v.  1 + m errs by that and 1.42 v, and is at least 0.7: exp = 2**k (1 + m) is known
  within 6 v exp, and within 2**-1074 more where it is subnormal.
* expm1 = exp - 1 and k3 = exp - (1 + x): the sums are kept exactly as hi + lo (Knuth's two-sum; the
  third part of k3 is added to lo, v |lo|), so err is that of exp and 2 v |lo|.

Where |x| > 745, e**x is beyond float64, or it lies strictly between 0 and 2**-1073: it is represented
by 2**-1074, which is off by less than 2**-1074.  Every ``err`` is a strict bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kl_audit.formats import Float64Array
from kl_audit.oracle.truth import BoolArray, Sum

V = 2.0**-53
SMALL = 0.3466
_LN2_HIGH = float.fromhex("0x1.62e42ffp-1")
_LN2_LOW = float.fromhex("-0x1.718432a1b0e26p-35")
_INVERSE_LN2 = 1.4426950408889634
#: Beyond this exp leaves float64 on both sides.
_LIMIT = 745.0
_COEFFICIENTS = [2.0 / math.factorial(n + 2) for n in range(1, 17)]


@dataclass
class _Small:
    """k3 of a small x as hi + lo, off by at most err."""

    hi: Float64Array
    lo: Float64Array
    err: Float64Array


def _fast_two_sum(a: Float64Array, b: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return (s, e) with s + e = a + b exactly; |a| >= |b| or a = 0 (Dekker 1971)."""
    s = a + b
    return s, b - (s - a)


def _k3_small(x: Float64Array, wide: bool) -> _Small:
    s = np.full_like(x, _COEFFICIENTS[-1])
    for c in _COEFFICIENTS[-2::-1]:
        s = c + x * s
    w = x * s
    h = 0.5 * x * x
    g = h * w
    hi, lo = _fast_two_sum(h, g)
    return _Small(hi, lo, 6 * V * np.abs(g) + (2 * V * h if wide else 0.0))


def _two_sum(a: Float64Array, b: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return (s, e) with s + e = a + b exactly, for any a and b (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _exp_large(x: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return (e**x, its error bound); inf beyond float64."""
    bounded = np.clip(x, -_LIMIT, _LIMIT)
    k = np.rint(bounded * _INVERSE_LN2)
    r = (bounded - k * _LN2_HIGH) - k * _LN2_LOW
    m = r + _k3_small(r, wide=True).hi
    with np.errstate(over="ignore", under="ignore"):
        value = np.ldexp(1.0 + m, k.astype(np.int64))
    # 2**-1074 is the spacing of subnormals, and all that is known of e**x below e**-745.
    value = np.where(x < -_LIMIT, 2.0**-1074, np.where(x > _LIMIT, np.inf, value))
    return value, np.where(np.isinf(value), 0.0, 6 * V * value + 2.0**-1074)


Parts = tuple[Float64Array, Float64Array, Float64Array]


def _select(x: Float64Array, small: Parts, large: Parts) -> Sum:
    """Return the small case where |x| is small, else the large one; parts are (hi, lo, err)."""
    inside: BoolArray = np.abs(x) <= SMALL
    hi, lo, err = (np.where(inside, a, b) for a, b in zip(small, large, strict=True))
    return Sum(hi, lo, err)


def exp(x: Float64Array, wide: bool = False) -> Sum:
    """Return e**x; ``wide`` says that x may have more than 26 bits (a difference of inputs)."""
    near = np.clip(x, -SMALL, SMALL)
    k3 = _k3_small(near, wide)
    m, m_lo = _fast_two_sum(near, k3.hi)
    hi, lo = _fast_two_sum(np.ones_like(x), m)
    inner = m_lo + k3.lo
    lo = lo + inner
    small = (hi, lo, k3.err + 2 * V * (np.abs(inner) + np.abs(lo)))
    value, err = _exp_large(x)
    return _select(x, small, (value, np.zeros_like(x), err))


def expm1(x: Float64Array, wide: bool = False) -> Sum:
    """Return e**x - 1."""
    near = np.clip(x, -SMALL, SMALL)
    k3 = _k3_small(near, wide)
    hi, lo = _fast_two_sum(near, k3.hi)
    lo = lo + k3.lo
    small = (hi, lo, k3.err + 2 * V * np.abs(lo))
    value, err = _exp_large(x)
    with np.errstate(invalid="ignore"):
        hi, lo = _two_sum(value, np.full_like(x, -1.0))
    return _select(x, small, (hi, _known(lo), err))


def k3(x: Float64Array, wide: bool = False) -> Sum:
    """Return e**x - x - 1."""
    near = np.clip(x, -SMALL, SMALL)
    part = _k3_small(near, wide)
    value, err = _exp_large(x)
    with np.errstate(invalid="ignore"):
        linear, rest = _two_sum(np.full_like(x, -1.0), -x)
        hi, lo = _two_sum(value, linear)
        lo = _known(lo) + rest
    err = err + 2 * V * np.abs(lo)
    return _select(x, (part.hi, part.lo, part.err), (hi, lo, err))


def _known(lo: Float64Array) -> Float64Array:
    """Drop the inf - inf that two-sum makes of an infinite value."""
    return np.where(np.isnan(lo), 0.0, lo)
