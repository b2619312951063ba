"""Where a candidate breaks: the log-ratios at which it starts to, found on the bit patterns.

In a 16-bit format every value is looked at.  In a wider one, a place where results turn from right to
wrong once (an overflow, the first NaN gradient) is bracketed on a ladder and bisected down to
neighbouring numbers; the end of the zone near 0 where digits cancel is ragged, and is searched for in
ever finer samples, in float32 (where truths come in bulk) until every number of the next sixteenth is right:
the value found is exact as a witness, and a lower bound as a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kl_audit.audit.along import between, first_true, magnitudes, results_at, truth_at
from kl_audit.formats import Float64Array, FloatArray, Format, hex_float
from kl_audit.oracle.truth import BoolArray
from kl_audit.quantities.base import Side
from kl_audit.sweep import Row

#: The zone near 0 is looked at from here to 1.
NEAR = 1e-9
#: The farthest log-ratio at which a first overflow or NaN is looked for.
FAR = 2000.0
#: So many neighbouring numbers are looked at in one go.
SCAN = 1 << 16
#: The levels of accuracy whose reach is told.
LEVELS = (0.1, 0.01)


@dataclass(frozen=True)
class Threshold:
    """A log-ratio at which a candidate's behaviour changes."""

    name: str  #: ``accurate-1%``, ``first-inf``, ``first-nan``, ``first-zero``, ``wrong-from``
    x: float  #: the log-ratio: the first with the property, or the last without
    how: str  #: exhaustive, bisection or search
    text: str  #: in words
    got: float | None = None  #: the result there
    truth: float | None = None


@dataclass
class _Along:
    """Results, truths and errors of a row along the log-ratio."""

    row: Row
    unclamped: Side

    @property
    def axis(self) -> str:
        """The name of what thresholds are told in: the one input, or the log-ratio d."""
        names = self.row.block.quantity.inputs
        return names[0] if len(names) == 1 else "d"

    def results(self, d: FloatArray) -> Float64Array:
        assert self.row.evaluate is not None
        return results_at(self.row.evaluate, self.row.block.quantity, self.row.block.fmt, d)

    def wrong(self, d: FloatArray, level: float) -> BoolArray:
        """Where the relative error is above level; only finite numbers on both sides are judged."""
        got = self.results(d)
        truth = truth_at(self.row.side, self.row.block.quantity, self.row.block.fmt, self.row.result, d)
        _, relative = truth.errors(got)
        normal = truth.exponent >= self.row.result.emin
        judged = np.isfinite(got) & ~truth.infinite & ~truth.undefined & normal
        out: BoolArray = judged & (relative > level)
        return out

    def nan(self, d: FloatArray) -> BoolArray:
        return np.isnan(self.results(d))

    def infinite(self, d: FloatArray) -> BoolArray:
        return np.isinf(self.results(d))

    def zero(self, d: FloatArray) -> BoolArray:
        """Exactly 0 although the unclamped truth is at least a thousandth."""
        fmt, quantity = self.row.block.fmt, self.row.block.quantity
        truth = truth_at(self.unclamped, quantity, fmt, self.row.result, d)
        pulls = ~truth.undefined & (truth.infinite | (truth.exponent >= -10))
        out: BoolArray = (self.results(d) == 0) & pulls
        return out


def thresholds(row: Row) -> list[Threshold]:
    """Return where a measured row breaks, nearest first; empty where it does not."""
    if row.evaluate is None or row.failed is not None:
        return []
    quantity = row.block.quantity
    along = _Along(row, quantity.side(row.block.output, row.block.wrt))
    found = list(_near(along))
    for sign in (1, -1):
        found += _far(along, sign)
    return found


def _near(along: _Along) -> Iterator[Threshold]:
    """Yield, per level of accuracy, the largest |d| <= 1 at which it is missed."""
    fmt = along.row.block.fmt
    for level in LEVELS:
        worst, sign = 0.0, 1
        for s in (1, -1):
            x = _last_wrong(along, s, level)
            if x > worst:
                worst, sign = x, s
        if worst:
            how = "exhaustive" if fmt.bits == 16 else "search"
            percent = f"{level:.0%}"
            text = (
                f"off by more than {percent} up to |{along.axis}| = {worst:.4g} ({hex_float(sign * worst)})"
            )
            yield _threshold(along, f"accurate-{percent}", sign * worst, how, text)


def _last_wrong(along: _Along, sign: int, level: float) -> float:
    fmt = along.row.block.fmt
    ladder = magnitudes(fmt, NEAR, 1.0, 8192)

    def wrong(values: FloatArray) -> BoolArray:
        return along.wrong((values.astype(np.float64) * sign).astype(fmt.dtype), level)

    hits = np.flatnonzero(wrong(ladder))
    if not len(hits):
        return 0.0
    last = float(ladder[hits[-1]])
    for factor, count in ((1.5, 4096), (1.15, 4096)) if fmt.bits > 16 else ():
        while True:
            inner = between(fmt, last, min(1.0, last * factor), count)
            hits = np.flatnonzero(wrong(inner)) if len(inner) else np.array([])
            if not len(hits):
                break
            before, last = last, float(inner[hits[-1]])
            if last < 1.002 * before:  # the next, finer look is worth more
                break
    # Where every truth costs a ball, half a million of them for one limit are too many.
    bulk = along.row.side.fast is not None and fmt.bits == 32
    return _scanned(fmt, last, wrong) if bulk else last


def _scanned(fmt: Format, last: float, wrong: Callable[[FloatArray], BoolArray]) -> float:
    """Return the last wrong value, all values looked at until a whole sixteenth beyond it is right."""
    at = last
    while at < (end := min(1.0, last * 1.0625)):
        first = int(fmt.cast([at]).view(fmt.uint)[0])
        final = min(first + SCAN, int(fmt.cast([end]).view(fmt.uint)[0]))
        block = np.arange(first + 1, final + 1, dtype=fmt.uint).view(fmt.dtype)
        if not len(block):
            break
        hits = np.flatnonzero(wrong(block))
        if len(hits):
            last = float(block[hits[-1]])
        at = float(block[-1])
    return last


def _far(along: _Along, sign: int) -> list[Threshold]:
    """Return the first infinity, NaN, dead zero and wrong result on one side of 0."""
    fmt, gradient = along.row.block.fmt, along.row.block.output == "gradient"
    what = "gradient" if gradient else "result"
    axis = along.axis
    side = f"{axis} >=" if sign > 0 else f"{axis} <="
    ladder = magnitudes(fmt, 2.0**-2, min(FAR, fmt.largest), 1024)
    beyond_one = magnitudes(fmt, 1.0, min(FAR, fmt.largest), 1024)
    predicates: list[tuple[str, str, Callable[[FloatArray], BoolArray]]] = [
        ("wrong-from", f"{what} off by more than 1 %", lambda d: along.wrong(d, 0.01)),
        ("first-zero", f"{what} exactly 0 where it must pull", along.zero),
        ("first-inf", f"{what} infinite", along.infinite),
        ("first-nan", f"{what} NaN", along.nan),
    ]
    found = []
    for name, words, predicate in predicates:
        if name == "first-zero" and not gradient:
            continue
        x = _first(along, sign, beyond_one if name == "wrong-from" else ladder, predicate)
        if x is not None:
            how = "exhaustive" if fmt.bits == 16 else "bisection"
            found.append(_threshold(along, name, sign * x, how, f"{words} from {side} {sign * x:.6g}"))
    return found


def _first(
    along: _Along, sign: int, ladder: FloatArray, predicate: Callable[[FloatArray], BoolArray]
) -> float | None:
    fmt = along.row.block.fmt

    def holds(values: FloatArray) -> BoolArray:
        return predicate((values.astype(np.float64) * sign).astype(fmt.dtype))

    hits = np.flatnonzero(holds(ladder))
    if not len(hits):
        return None
    first = int(hits[0])
    high = float(ladder[first])
    if first == 0:
        return high
    return first_true(fmt, float(ladder[first - 1]), high, holds)


def _threshold(along: _Along, name: str, x: float, how: str, text: str) -> Threshold:
    fmt = along.row.block.fmt
    d = fmt.cast([x])
    got = float(along.results(d)[0])
    truth = truth_at(along.unclamped, along.row.block.quantity, fmt, along.row.result, d)
    scale = 0 if truth.sum.scale is None else int(truth.sum.scale[0])
    with np.errstate(over="ignore"):
        want = float(np.ldexp(truth.sum.hi[0], scale))
    shown = "no value" if math.isnan(want) else f"{want:.6g}"
    return Threshold(name, x, how, f"{text}: {got:.6g}, right {shown}", got, want)
