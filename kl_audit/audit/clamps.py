"""A clamp found from outside: a result that stays the same however far the log-ratio goes."""

from __future__ import annotations

import math

import numpy as np

from kl_audit.audit.along import first_true, magnitudes, results_at, truth_at
from kl_audit.backends import Evaluate
from kl_audit.formats import FloatArray, Format
from kl_audit.oracle.truth import BoolArray
from kl_audit.quantities.base import EDGE, Clamp, Quantity

#: A tail is a clamp when it is constant from some point on to at least this many times that point.
REACH = 4.0

#: The nearest log-ratio at which a clamp is looked for.
NEAREST = 2.0**-12

#: The farthest log-ratio looked at; the format's largest where that is less.
FARTHEST = 1e4


def infer_clamp(evaluate: Evaluate, quantity: Quantity, fmt: Format, result: Format) -> Clamp | None:
    """Return the clamp that a candidate's results show, or None.

    For a quantity with a valley the same constant at both ends is a clamp of the result; different
    ones, or one alone, are a clamp of the log-ratio at the point where the result stops changing.
    For a monotone quantity the two are the same objective, and the result's limits are exact.
    """
    tails = {side: _tail(evaluate, quantity, fmt, result, side) for side in (-1, 1)}
    low, high = tails[-1], tails[1]
    if low is None and high is None:
        return None
    if not quantity.nonnegative or quantity.base_name == "ratio":
        ends = sorted(
            math.copysign(math.inf, side) if tail is None else tail[1]
            for side, tail in ((-1 if _rises(quantity) else 1, low), (1 if _rises(quantity) else -1, high))
        )
        return Clamp(output=(ends[0], ends[1]))
    if low is not None and high is not None and low[1] == high[1] and _reached(quantity, fmt, low, high):
        limit = abs(low[1])
        return Clamp(output=(-limit, limit))
    inner = (-math.inf if low is None else _plain(low[0]), math.inf if high is None else _plain(high[0]))
    return Clamp(input=inner)


def _reached(quantity: Quantity, fmt: Format, *tails: tuple[float, float]) -> bool:
    """Whether the quantity has the constant's value where each tail begins: else the log-ratio is clipped."""
    for edge, constant in tails:
        truth = truth_at(quantity.value, quantity, fmt, fmt, fmt.cast([edge]))
        _, relative = truth.errors(np.array([constant]))
        if not relative[0] < 0.25:
            return False
    return True


def _rises(quantity: Quantity) -> bool:
    """Whether the quantity grows with the log-ratio."""
    return quantity.value.limits[1] > quantity.value.limits[0] or quantity.base_name == "ratio"


def _tail(
    evaluate: Evaluate, quantity: Quantity, fmt: Format, result: Format, sign: int
) -> tuple[float, float] | None:
    """Return (log-ratio from which the result is constant, the constant) on one side, or None."""
    ladder = magnitudes(fmt, NEAREST, min(FARTHEST, fmt.largest), 512)
    signed = (ladder.astype(np.float64) * sign).astype(fmt.dtype)
    got = results_at(evaluate, quantity, fmt, signed)
    last = got[-1]
    if not math.isfinite(last):
        return None
    differs = np.flatnonzero(got != last)
    start = int(differs[-1]) + 1 if len(differs) else 0
    size = ladder.astype(np.float64)
    if not start or start >= len(size) - 2 or size[-1] < REACH * size[start]:
        return None  # one that never changes is a constant, not a clamp
    truth = truth_at(quantity.value, quantity, fmt, result, signed[start + 1 :])
    _, relative = truth.errors(np.full(len(signed) - start - 1, last))
    wrong = (truth.infinite | (relative > 4 * EDGE)) & ~(truth.rounds_to_zero & (last == 0))
    if np.count_nonzero(wrong & ~truth.undefined) < 0.9 * len(wrong):
        return None
    edge = size[start]

    def same(values: FloatArray) -> BoolArray:
        d = (values.astype(np.float64) * sign).astype(fmt.dtype)
        out: BoolArray = results_at(evaluate, quantity, fmt, d) == last
        return out

    return sign * first_true(fmt, size[start - 1], edge, same), float(last)


def _plain(x: float) -> float:
    """Return the shortest decimal within the width of a clamp's edge: rounding blurs where it lies."""
    for digits in (1, 2):
        short = float(f"{x:.{digits}g}")
        if abs(short - x) <= EDGE * abs(x):
            return short
    return x
