"""Measurements: what a candidate's results are against the truth, accumulated chunk by chunk.

A ``Tally`` keeps what a report needs (counts with witnesses, worst errors, one record per decade, a
signed histogram) in memory that does not grow with the number of points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kl_audit.formats import Float64Array, FloatArray, Format
from kl_audit.formulations.laws import Law, Terms
from kl_audit.grids import CORE_LOW, decade_edges
from kl_audit.oracle import doubles
from kl_audit.oracle.truth import BoolArray, TruthArray
from kl_audit.quantities.base import Quantity

#: Lower ends of the histogram's bins of |ulp error| beyond the first, which is [0, 0.5].
HISTOGRAM_EDGES = [0.5, *(2.0**k for k in range(11))]


@dataclass(frozen=True)
class Witness:
    """One input, and what the candidate made of it."""

    inputs: tuple[float, ...]
    got: float


@dataclass
class Count:
    """How often something happened, where it was seen first, and where worst."""

    n: int = 0
    first: Witness | None = None
    worst: Witness | None = None
    _score: float = -math.inf

    def add(self, chunk: Chunk, got: Float64Array, where: BoolArray, score: Float64Array) -> None:
        """Count the points of ``where``; the highest ``score`` is the worst."""
        hits = int(np.count_nonzero(where))
        if not hits:
            return
        self.n += hits
        if self.first is None:
            self.first = chunk.witness(int(np.argmax(where)), got)
        scored = np.where(where, np.nan_to_num(score, nan=-math.inf), -math.inf)
        i = int(np.argmax(scored))
        if self.worst is None or scored[i] > self._score:
            self._score = float(scored[i])
            self.worst = chunk.witness(i if where[i] else int(np.argmax(where)), got)


@dataclass
class Peak:
    """The largest value of something, and where."""

    value: float = 0.0
    at: Witness | None = None

    def add(self, chunk: Chunk, got: Float64Array, values: Float64Array) -> None:
        """Take the maximum over a chunk; nan never counts."""
        i = int(np.argmax(values))
        if values[i] > self.value or (self.at is None and values[i] == self.value):
            self.value, self.at = float(values[i]), chunk.witness(i, got)


@dataclass
class Band:
    """What happened in one decade of |log-ratio|."""

    lo: float
    hi: float
    points: int = 0
    x_min: float = math.inf  #: least and greatest |x| measured in it
    x_max: float = 0.0
    max_ulp: float = 0.0
    max_rel: float = 0.0
    law_error: float = 0.0  #: greatest error in the law's own unit
    pointwise_ratio: float = 0.0  #: greatest error over pointwise bound
    pointwise_bound: float = 0.0  #: greatest pointwise bound
    constant: float = 0.0  #: greatest normalised error: the law's C, here
    worst: Witness | None = None  #: where the law fares worst


class Chunk:
    """Inputs of one evaluation, with everything about them that all rows share."""

    def __init__(self, quantity: Quantity, fmt: Format, inputs: tuple[FloatArray, ...]) -> None:
        self.fmt = fmt
        self.inputs = inputs
        self.wide: tuple[Float64Array, ...] = tuple(c.astype(np.float64) for c in inputs)
        self.x: Float64Array = quantity.log_ratio(*self.wide)
        self._pointwise: dict[int, Float64Array] = {}

    def witness(self, i: int, got: Float64Array) -> Witness:
        """Return the point at ``i``."""
        return Witness(tuple(float(c[i]) for c in self.wide), float(got[i]))

    @cached_property
    def magnitude(self) -> Float64Array:
        """|x|, the axis of the bands."""
        return np.abs(self.x)

    @cached_property
    def runs(self) -> tuple[list[int], list[int]]:
        """Band numbers (-1: x = 0) of the maximal runs of equal band, and where each starts."""
        edges = np.array(decade_edges(self.fmt))
        band = np.searchsorted(edges, self.magnitude, side="right") - 1
        # below the lowest edge (a float64 1e-324 is zero), and zero itself
        band = np.where(self.magnitude == 0, -1, np.clip(band, 0, len(edges) - 2))
        starts = np.flatnonzero(np.diff(band, prepend=band[0] - 1))
        return band[starts].tolist(), starts.tolist()

    @cached_property
    def terms(self) -> Terms:
        """(x, e**x, e**x - 1, k3(x)) in float64, for laws."""
        return (
            self.x,
            doubles.exp(self.x, True).hi,
            doubles.expm1(self.x, True).hi,
            doubles.k3(self.x, True).hi,
        )

    def pointwise(self, law: Law, extra: Float64Array) -> Float64Array:
        """Return the law's bound at every point; 0/0 at x = 0 counts as no bound."""
        if id(law) not in self._pointwise:
            with np.errstate(invalid="ignore", over="ignore"):
                bound = law.pointwise(self.fmt, self.terms) + extra * self.fmt.u
            self._pointwise[id(law)] = np.where(np.isnan(bound), np.inf, bound)
        return self._pointwise[id(law)]


@dataclass
class Tally:
    """Everything measured of one row so far."""

    quantity: Quantity
    fmt: Format
    output: str
    law: Law | None
    top: int
    result: Format = None  # type: ignore[assignment]  #: the format of the results; default: fmt
    flushes: bool = False  #: the back end is known to flush subnormal results to zero
    points: int = 0
    undefined: int = 0
    max_ulp: Peak = field(default_factory=Peak)
    max_rel: Peak = field(default_factory=Peak)
    worst: list[tuple[float, Witness]] = field(default_factory=list)
    bands: dict[int, Band] = field(default_factory=dict)
    negatives: Count = field(default_factory=Count)
    false_zeros: Count = field(default_factory=Count)
    nonfinite: Count = field(default_factory=Count)
    nan: Count = field(default_factory=Count)
    infinite: Count = field(default_factory=Count)  #: of the mismatches, those without a NaN
    zero_signs: Count = field(default_factory=Count)
    nonmonotone: Count = field(default_factory=Count)
    not_zero_at_zero: Count = field(default_factory=Count)
    zeros_at_law: Count = field(default_factory=Count)  #: false zeros that break the law
    core_zeros: Count = field(default_factory=Count)  #: false zeros at |x| >= CORE_LOW, truth normal
    core_rel: Peak = field(default_factory=Peak)  #: greatest relative error at |x| >= CORE_LOW
    flushed: Count = field(default_factory=Count)  #: zeros for subnormal truths, if flushing is known
    histogram: np.ndarray[tuple[int, int], np.dtype[np.int64]] = field(
        default_factory=lambda: np.zeros((2, len(HISTOGRAM_EDGES) + 1), dtype=np.int64)
    )
    _last: tuple[float, float] | None = None  #: (x, got) at the end of the previous chunk

    def __post_init__(self) -> None:
        if self.result is None:
            self.result = self.fmt

    def update(self, chunk: Chunk, truth: TruthArray, result: FloatArray) -> None:
        """Take in the results on one chunk; chunks come in ascending order."""
        got = result.astype(np.float64)
        defined = ~truth.undefined
        judged = np.isfinite(got) & defined & ~truth.infinite
        if self.flushes:
            # What the back end does to every subnormal is stated once, not held against each row.
            flushed = judged & (got == 0) & (truth.exponent < self.result.emin) & (truth.sum.hi != 0)
            self.flushed.add(chunk, got, flushed & ~truth.rounds_to_zero, chunk.magnitude)
            judged &= ~flushed
        ulps, rel = truth.errors(got)
        ulps = np.where(judged, ulps, 0.0)
        rel = np.where(judged, rel, 0.0)
        # Relative error is a measure of a format only where it has all its bits.
        normal = np.where(truth.exponent >= self.result.emin, rel, 0.0)
        size = np.abs(ulps)
        self.points += len(got)
        self.undefined += int(np.count_nonzero(truth.undefined))
        self.max_ulp.add(chunk, got, size)
        self.max_rel.add(chunk, got, normal)
        core = chunk.magnitude >= CORE_LOW * (1 - 2.0**-8)  # 1e-6 as any format stores it
        self.core_rel.add(chunk, got, np.where(core, normal, 0.0))
        core_zero = core & judged & (got == 0) & (normal > 0)
        self.core_zeros.add(chunk, got, core_zero, chunk.magnitude)
        self._keep_worst(chunk, got, size)
        error = size if self.law is not None and self.law.in_ulps else rel
        self._count(chunk, truth, got, defined, error)
        self._bands(chunk, got, size, normal, error)
        self._histogram(ulps, judged)

    def _keep_worst(self, chunk: Chunk, got: Float64Array, size: Float64Array) -> None:
        k = min(self.top, len(size))
        for i in np.argpartition(size, -k)[-k:].tolist():
            if size[i] > 0 or len(size) <= self.top:  # a short list is kept whole
                self.worst.append((float(size[i]), chunk.witness(i, got)))
        self.worst.sort(key=lambda w: -w[0])
        del self.worst[self.top :]

    def _count(
        self,
        chunk: Chunk,
        truth: TruthArray,
        got: Float64Array,
        defined: BoolArray,
        error: Float64Array,
    ) -> None:
        t = truth.sum.hi
        is_zero = got == 0
        nan = np.isnan(got) & defined
        mismatch = (np.isinf(got) != truth.infinite) | (truth.infinite & (np.signbit(got) != np.signbit(t)))
        self.nan.add(chunk, got, nan, -chunk.magnitude)
        self.nonfinite.add(chunk, got, nan | (mismatch & defined), -chunk.magnitude)
        self.infinite.add(chunk, got, mismatch & defined & ~nan, -chunk.magnitude)
        false_zero = is_zero & ~truth.rounds_to_zero & defined
        self.false_zeros.add(chunk, got, false_zero, chunk.magnitude)
        wrong_sign = is_zero & (t != 0) & (np.signbit(got) != np.signbit(t)) & defined
        self.zero_signs.add(chunk, got, wrong_sign, chunk.magnitude)
        if self.law is not None and false_zero.any():
            breaks = false_zero & (error > self.pointwise(chunk))
            self.zeros_at_law.add(chunk, got, breaks, chunk.magnitude)
        if self.output == "gradient":
            return
        if self.quantity.nonnegative:
            self.negatives.add(chunk, got, got < 0, -got)
        if self.quantity.zero_at_zero:
            self.not_zero_at_zero.add(chunk, got, (chunk.x == 0) & ~is_zero, np.abs(got))
        if self.quantity.valley:
            self._monotone(chunk, got)

    def _monotone(self, chunk: Chunk, got: Float64Array) -> None:
        """Count neighbours that rise before zero or fall after it, across chunks too."""
        x = chunk.x
        previous_x, previous = np.roll(x, 1), np.roll(got, 1)
        previous_x[0], previous[0] = self._last if self._last else (x[0], got[0])
        self._last = (float(x[-1]), float(got[-1]))
        negative = np.signbit(x)
        same_side = negative == np.signbit(previous_x)
        with np.errstate(invalid="ignore"):
            step = np.where(negative, got - previous, previous - got)
        self.nonmonotone.add(chunk, got, same_side & (step > 0), step)

    def pointwise(self, chunk: Chunk) -> Float64Array:
        """Return the law's bound at every point of a chunk, with what a lifted quantity adds."""
        assert self.law is not None
        return chunk.pointwise(self.law, self.quantity.lift_error(chunk.x))

    def _bands(
        self,
        chunk: Chunk,
        got: Float64Array,
        size: Float64Array,
        normal: Float64Array,
        error: Float64Array,
    ) -> None:
        names, starts = chunk.runs
        ends = [*starts[1:], len(size)]
        columns = {
            "max_ulp": np.maximum.reduceat(size, starts),
            "max_rel": np.maximum.reduceat(normal, starts),
            "law_error": np.maximum.reduceat(error, starts),
            "x_max": np.maximum.reduceat(chunk.magnitude, starts),
        }
        x_min = np.minimum.reduceat(chunk.magnitude, starts)
        if self.law is not None:
            bound = self.pointwise(chunk)
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = np.where((error == 0) | np.isinf(bound), 0.0, error / bound)
            finite_bound = np.where(np.isinf(bound), 0.0, bound)
            constant = self.law.normalised(self.fmt, chunk.x, error)
            columns["constant"] = np.maximum.reduceat(constant, starts)
            columns["pointwise_ratio"] = np.maximum.reduceat(ratio, starts)
            columns["pointwise_bound"] = np.maximum.reduceat(finite_bound, starts)
        else:
            ratio = error
        edges = decade_edges(self.fmt)
        for i, name in enumerate(names):
            if name < 0:
                continue
            band = self.bands.setdefault(name, Band(edges[name] or self.fmt.smallest, edges[name + 1]))
            band.points += ends[i] - starts[i]
            band.x_min = min(band.x_min, float(x_min[i]))
            # Below 1 a law is held against the decade's greatest error, above it point by point.
            low, high = starts[i], ends[i]
            judged, seen = (error, band.law_error) if band.hi <= 1 else (ratio, band.pointwise_ratio)
            worst = low + int(np.argmax(judged[low:high]))
            if judged[worst] > seen:
                band.worst = chunk.witness(worst, got)
            for key, values in columns.items():
                setattr(band, key, max(getattr(band, key), float(values[i])))

    def _histogram(self, ulps: Float64Array, both: BoolArray) -> None:
        size = np.abs(ulps[both])
        _, exponent = np.frexp(size)  # size in [2**(exponent-1), 2**exponent)
        bin_ = np.clip(exponent + 1, 1, len(HISTOGRAM_EDGES))
        bin_ = np.where(size <= 0.5, 0, bin_)
        sign = (ulps[both] > 0).astype(np.int64)
        flat = np.bincount(sign * (len(HISTOGRAM_EDGES) + 1) + bin_, minlength=self.histogram.size)
        self.histogram += flat.reshape(self.histogram.shape)

    def ordered_bands(self) -> Iterator[Band]:
        """Yield the decades with points in them, ascending."""
        for name in sorted(self.bands):
            yield self.bands[name]

    def library_error(self, below: float) -> float:
        """Return the worst error in ulp over the decades that end at or below ``below``."""
        return max((b.max_ulp for b in self.bands.values() if b.hi <= below), default=0.0)
