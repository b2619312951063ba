"""ULP error, rounding to a format, and integer steps.

The scalar versions below are written to be read: exact rational arithmetic, no floating point.
The array versions in ``oracle.truth`` are written to be fast, and tested against these.

ulp(t) = 2**(max(floor(log2|t|), emin) - (p - 1)), and the error of a result is (got - t) / ulp(t)
against the *unrounded* truth t, so a correctly rounded result has |error| <= 1/2.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from kl_audit.formats import FloatArray, Format, ordinal


def floor_log2(t: Fraction) -> int:
    """Return floor(log2|t|) for t != 0, exactly."""
    n, d = abs(t.numerator), t.denominator
    e = n.bit_length() - d.bit_length()
    return e if (n >= d << e if e >= 0 else n << -e >= d) else e - 1


def ulp_exponent(t: Fraction, fmt: Format) -> int:
    """Return k with ulp(t) = 2**k; for t = 0 and subnormals it is that of the smallest number."""
    e = fmt.emin if t == 0 else max(floor_log2(t), fmt.emin)
    return e - (fmt.precision - 1)


def ulp(t: Fraction, fmt: Format) -> Fraction:
    """Return the unit in the last place of the format at t, as an exact power of two."""
    return Fraction(2) ** ulp_exponent(t, fmt)


def overflow_threshold(fmt: Format) -> Fraction:
    """Return 2**emax * (2 - 2**-p): from here on, round-to-nearest gives infinity."""
    return Fraction(2) ** fmt.emax * (2 - Fraction(1, 2**fmt.precision))


def round_to_format(t: Fraction, fmt: Format) -> float:
    """Round t to the nearest value of the format, ties to even, overflow to infinity.

    Every value of every format is a float64, so a Python float holds the result exactly.  The sign
    of a zero result is that of t.
    """
    if abs(t) >= overflow_threshold(fmt):
        return float("inf") if t > 0 else float("-inf")
    k = ulp_exponent(t, fmt)
    steps = round(t / Fraction(2) ** k)  # Fraction.__round__ rounds halves to even
    if steps == 0:
        return -0.0 if t < 0 else 0.0
    return float(steps * Fraction(2) ** k)


def ulp_error(got: float, t: Fraction, fmt: Format) -> Fraction:
    """Return (got - t) / ulp(t) exactly; ``got`` is finite, |t| below the overflow threshold."""
    return (Fraction(got) - t) / ulp(t, fmt)


def steps_between(a: FloatArray, b: FloatArray, fmt: Format) -> npt.NDArray[np.float64]:
    """Return the number of representable steps from a to b (ordinal distance); NaN gives nan.

    Returned as float64 because float64 patterns of opposite sign are further apart than int64 goes.
    """
    first, second = ordinal(a, fmt), ordinal(b, fmt)
    same = (first < 0) == (second < 0)
    near = np.where(same, second, 0) - np.where(same, first, 0)
    out = np.where(same, near.astype(np.float64), second.astype(np.float64) - first.astype(np.float64))
    out[np.isnan(a.astype(np.float64)) | np.isnan(b.astype(np.float64))] = np.nan
    return out
