"""Error laws: what a formulation promises, as a bound on its relative error.

A law is checked per decade of |x| below 1 against C u / |x|min**k, as the source notebook does, and
pointwise, for every x, against the sum of its rounding errors.  A bound of 1 or more promises
nothing: there the verdict is *vacuous*.

E is the worst error in ulp of the library function that the formulation rests on, measured on the
same back end.  Half an ulp is at most u relative, so E ulp are at most 2 E u.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kl_audit.formats import Float64Array, Format

#: (x, e**x, e**x - 1, k3(x)) as float64, to bound the terms of a formulation.
Terms = tuple[Float64Array, Float64Array, Float64Array, Float64Array]


class Law(Protocol):
    """A promise about the error of a formulation."""

    @property
    def name(self) -> str:
        """The law, as reports print it."""

    @property
    def rests_on(self) -> str | None:
        """The library function whose E decides the constant."""

    @property
    def inside(self) -> str | None:
        """The format in which that function is called; None: the audited one."""

    @property
    def in_ulps(self) -> bool:
        """Whether bounds and constants count ulps, not relative error."""

    def decade_bound(self, fmt: Format, x_min: float, x_max: float) -> float | None:
        """Bound for a decade of |x| from its least and greatest |x|; None: only pointwise."""

    def pointwise(self, fmt: Format, terms: Terms) -> Float64Array:
        """Bound at every point, all x."""

    def normalised(self, fmt: Format, x: Float64Array, error: Float64Array) -> Float64Array:
        """The error as a multiple of the law's unit: its maximum is the measured constant."""

    def predicted(self, library_error: float) -> float:
        """The constant to expect where the library function errs by E ulp."""


@dataclass(frozen=True)
class PowerLaw:
    """Relative error <= C u / |x|**k for |x| < 1, and pointwise u (1 + terms) for every x."""

    name: str
    constant: float
    order: int
    rests_on: str | None
    #: rounded intermediate results over the final one: their sum is the pointwise bound in u, less 1
    amplification: Callable[[Terms], Float64Array]
    #: predicted constant = slope * E + offset
    slope: float
    offset: float = 0.0
    in_ulps: bool = False
    inside: str | None = None

    def decade_bound(self, fmt: Format, x_min: float, x_max: float) -> float | None:
        """See ``Law``."""
        if x_max >= 1:
            return None
        bound = self.constant * fmt.u
        for _ in range(self.order):  # step by step: the power alone underflows
            bound /= x_min
        return bound

    def pointwise(self, fmt: Format, terms: Terms) -> Float64Array:
        """See ``Law``."""
        return fmt.u * (1 + self.amplification(terms))

    def normalised(self, fmt: Format, x: Float64Array, error: Float64Array) -> Float64Array:
        """See ``Law``: error |x|**k / u, where |x| < 1."""
        size = np.minimum(np.abs(x), 1.0)
        with np.errstate(invalid="ignore"):
            scaled = error * size**self.order / fmt.u
        # an infinite relative error at an x whose power underflows
        return np.where(size < 1, np.where(np.isnan(scaled), np.inf, scaled), 0.0)

    def predicted(self, library_error: float) -> float:
        """See ``Law``."""
        return self.slope * library_error + self.offset


@dataclass(frozen=True)
class UlpLaw:
    """At most ``limit`` ulp everywhere; the constant is the measured worst error in ulp."""

    limit: float
    rests_on: str | None = None
    slope: float = 0.0
    offset: float = 0.0
    in_ulps: bool = True
    inside: str | None = None

    @property
    def name(self) -> str:
        """The law, as reports print it."""
        return f"{self.limit:g} ulp"

    def decade_bound(self, fmt: Format, x_min: float, x_max: float) -> float | None:
        """See ``Law``."""
        return self.limit

    def pointwise(self, fmt: Format, terms: Terms) -> Float64Array:
        """See ``Law``."""
        return np.full_like(terms[0], self.limit)

    def normalised(self, fmt: Format, x: Float64Array, error: Float64Array) -> Float64Array:
        """See ``Law``: the error in ulp."""
        return error

    def predicted(self, library_error: float) -> float:
        """See ``Law``."""
        return self.slope * library_error + self.offset


@dataclass(frozen=True)
class SeamLaw:
    """A truncated series below a threshold, another law above it.

    Below: relative error <= rounding * u + truncation(|x|), and three halves of the smallest number
    in absolute terms, which is what a square and its half lose when they underflow.  The
    constant is that of the upper law, measured over its own part.
    """

    name: str
    threshold: float
    rounding: float
    truncation: Callable[[float], float]
    above: PowerLaw
    in_ulps: bool = False
    inside: str | None = None

    @property
    def rests_on(self) -> str | None:
        """The library function of the upper part."""
        return self.above.rests_on

    def decade_bound(self, fmt: Format, x_min: float, x_max: float) -> float | None:
        """See ``Law``; a decade with the seam inside takes the larger of the two."""
        series = self.rounding * fmt.u + self.truncation(min(x_max, self.threshold))
        square = x_min * x_min
        series += 3 * fmt.smallest / square if square else np.inf
        upper = self.above.decade_bound(fmt, max(x_min, self.threshold), x_max)
        if x_max < self.threshold:
            return series
        if upper is None or x_min >= self.threshold:
            return upper
        return max(series, upper)

    def pointwise(self, fmt: Format, terms: Terms) -> Float64Array:
        """See ``Law``."""
        below = np.abs(terms[0]) < self.threshold
        flat = self.rounding * fmt.u + self.truncation(self.threshold)
        with np.errstate(divide="ignore", over="ignore"):
            series = flat + 3 * fmt.smallest / terms[0] ** 2
        return np.where(below, series, self.above.pointwise(fmt, terms))

    def normalised(self, fmt: Format, x: Float64Array, error: Float64Array) -> Float64Array:
        """See ``Law``: over the part above the threshold."""
        upper = np.where(np.abs(x) >= self.threshold, error, 0.0)
        return self.above.normalised(fmt, x, upper)

    def predicted(self, library_error: float) -> float:
        """See ``Law``."""
        return self.above.predicted(library_error)


def _over_k3(numerator: Callable[[Terms], Float64Array]) -> Callable[[Terms], Float64Array]:
    def ratio(terms: Terms) -> Float64Array:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value: Float64Array = numerator(terms) / terms[3]
        # inf / inf: every term is e**x there
        return np.where(np.isnan(value), 2.0, value)

    return ratio


#: expm1(d) - d: expm1 errs by u |expm1| (E ulp: 2 E u), the difference by u k3; k3 -> d^2/2.
EXPM1_LAW = PowerLaw("2u/|x|", 2, 1, "expm1", _over_k3(lambda t: np.abs(t[2])), slope=4)

#: (exp(d) - d) - 1: exp errs by u e^d and the first difference by u |e^d - d|, both near 1.
NAIVE_LAW = PowerLaw("4u/x^2", 4, 2, "exp", _over_k3(lambda t: t[1] + np.abs(t[1] - t[0])), slope=4, offset=2)

#: (exp(d) - 1) - d: the first difference is exact near 0, so exp's error is all there is.
GROUPED_LAW = PowerLaw("2u/x^2", 2, 2, "exp", _over_k3(lambda t: t[1] + np.abs(t[2])), slope=4)


def _over_slope(terms: Terms) -> Float64Array:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value: Float64Array = 2 * (terms[1] + 1) / np.abs(terms[2])
    return np.where(np.isnan(value), 2.0, value)


#: The derivative exp(d) - 1 as autodiff forms it, whatever the value: e^d (or expm1 + 1) is rounded
#: near 1, which costs up to an ulp, 2 u, where expm1(d) is about d.
SLOPE_LAW = PowerLaw("2u/|x|", 2, 1, "exp", _over_slope, slope=2, offset=1)

#: Below 1e-2 the truncated series: |x|^3/60, and 2 % more for what follows it; above, expm1's law.
HYBRID_LAW = SeamLaw(
    "4u + |x|^3/60 below 1e-2, 2u/|x| above",
    threshold=1e-2,
    rounding=4,
    truncation=lambda x: 1.02 * x**3 / 60,
    above=EXPM1_LAW,
)

#: Kahan's expm1 errs by four roundings instead of one: see k3_compensated.
COMPENSATED_LAW = PowerLaw(
    "8u/|x|", 8, 1, None, _over_k3(lambda t: 4 * np.abs(t[2]) + t[1]), slope=4, offset=6
)
