"""Truth in bulk: an unevaluated sum hi + lo per point with a bound on its error.

The decisions that depend on the truth (its binade, whether it overflows, whether it rounds to zero)
are made once per chunk and shared by every row.  Where the bound leaves a decision open, the point
is handed to the exact oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from kl_audit.formats import Float64Array, Format
from kl_audit.ulp import floor_log2

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass
class Sum:
    """Values (hi + lo) * 2**scale, each off by less than err * 2**scale (or exact: err = 0).

    hi is nan where the quantity is undefined and +-inf where it is beyond float64.  ``scale`` is
    None for zero; float64 audits need it, because k3 of a small float64 is no float64.
    """

    hi: Float64Array
    lo: Float64Array
    err: Float64Array
    scale: IntArray | None = None


def split(value: Fraction) -> tuple[float, float, int]:
    """Return (hi, lo, scale) with value = (hi + lo) * 2**scale up to 2**-105 relative.

    1 <= |hi| <= 2; hi = 0 only for an exact zero.
    """
    if value == 0:
        return 0.0, 0.0, 0
    scale = floor_log2(value)
    scaled = value / Fraction(2) ** scale
    hi = float(scaled)  # Fraction to float rounds to nearest
    return hi, float(scaled - Fraction(hi)), scale


@dataclass
class TruthArray:
    """The truth of one quantity on one chunk, prepared for one format."""

    fmt: Format
    sum: Sum
    exponent: IntArray = field(init=False)  #: floor(log2|t|)
    ulp_exponent: IntArray = field(init=False)  #: ulp(t) = 2**ulp_exponent
    infinite: BoolArray = field(init=False)  #: |t| rounds to infinity
    rounds_to_zero: BoolArray = field(init=False)
    undefined: BoolArray = field(init=False)
    open: BoolArray = field(init=False)  #: some decision above is not settled by the bound

    def __post_init__(self) -> None:
        self._decide()

    def settle(self, exact: Callable[[int], Fraction]) -> int:
        """Replace the open points by certified values from ``exact(index)``; return how many."""
        indices = np.flatnonzero(self.open)
        for i in indices:
            hi, lo, scale = split(exact(int(i)))
            if self.sum.scale is None:
                hi, lo, scale = float(np.ldexp(hi, scale)), float(np.ldexp(lo, scale)), 0
            else:
                self.sum.scale[i] = scale
            self.sum.hi[i], self.sum.lo[i] = hi, lo
            self.sum.err[i] = abs(hi) * 2.0 ** -(self.fmt.precision + 39)
        if len(indices):
            self._decide()
            self.open[indices] = False
        return len(indices)

    def _decide(self) -> None:
        fmt, hi, lo, err = self.fmt, self.sum.hi, self.sum.lo, self.sum.err
        magnitude = np.abs(hi)
        signed_lo = np.where(hi < 0, -lo, lo)  # lo as it moves |t|
        finite = np.isfinite(hi)
        mantissa, exponent = np.frexp(np.where(finite, magnitude, 1.0))
        # |t| is just below a power of two when hi is one and lo points towards zero.
        power = np.ldexp(1.0, exponent - 1)
        below = (mantissa == 0.5) & (signed_lo < 0)
        binade = np.where(below, exponent - 2, exponent - 1).astype(np.int64)
        self.exponent = binade if self.sum.scale is None else binade + self.sum.scale
        self.exponent[magnitude == 0] = fmt.emin
        self.ulp_exponent = np.maximum(self.exponent, fmt.emin) - (fmt.precision - 1)
        self.undefined = np.isnan(hi)

        # 2 - 2**-p is no float64 for p = 53: in two parts
        over = self._versus(2.0, 2.0**-fmt.precision, fmt.emax)
        under = self._versus(0.5, 0.0, fmt.emin - fmt.precision + 1)
        normal = self.exponent >= fmt.emin - 1  # below, the binade does not matter
        with np.errstate(invalid="ignore", over="ignore"):
            self.infinite = (over >= 0) | np.isinf(hi)
            self.rounds_to_zero = under <= 0  # a tie goes to the even neighbour, zero
            near_power = (np.abs((magnitude - power) + signed_lo) < err) | (
                np.abs((magnitude - 2 * power) + signed_lo) < err
            )
            is_open = (
                (near_power & normal)
                | (np.abs(over) < self._err(fmt.emax))
                | (np.abs(under) < self._err(fmt.emin - fmt.precision + 1))
            )
        self.open = is_open & (err > 0) & finite

    def _versus(self, mantissa: float, less: float, exponent: int) -> Float64Array:
        """Return |t| - (mantissa - less) 2**exponent in units of 2**exponent, saturating."""
        hi, lo = self.sum.hi, self.sum.lo
        shift = (self.sum.scale if self.sum.scale is not None else 0) - exponent
        shift = np.minimum(shift, 1000)  # far beyond the limit already, and lo stays finite
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            a = np.ldexp(np.abs(hi), shift)
            b = np.ldexp(np.where(hi < 0, -lo, lo), shift)
            return ((a - mantissa) + less) + b

    def _err(self, exponent: int) -> Float64Array:
        shift = (self.sum.scale if self.sum.scale is not None else 0) - exponent
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(self.sum.err, np.minimum(shift, 1000))

    def errors(self, got: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return (ulp error, absolute relative error) of finite results against finite truths.

        The caller masks what is not finite.  Relative error of an exactly zero truth is inf unless
        the result is zero too.
        """
        hi, lo, scale = self.sum.hi, self.sum.lo, self.sum.scale
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            if scale is None:
                difference = (got - hi) - lo
                truth: Float64Array = np.abs(hi)
                ulps = np.ldexp(difference, -self.ulp_exponent)
            else:
                # One common scale, so that neither the result nor a tiny truth falls out of range.
                common = np.maximum(scale, self.fmt.emin - self.fmt.precision + 1)
                t = np.ldexp(hi, scale - common)
                difference = (np.ldexp(got, -common) - t) - np.ldexp(lo, scale - common)
                truth = np.abs(t)
                ulps = np.ldexp(difference, common - self.ulp_exponent)
            relative = np.abs(difference) / truth
        relative[(got == 0) & (hi != 0)] = 1.0
        relative[(got == 0) & (hi == 0)] = 0.0
        return ulps, relative
