"""Points along the log-ratio: where thresholds and clamps are looked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kl_audit.backends import Evaluate
from kl_audit.formats import Float64Array, FloatArray, Format
from kl_audit.oracle.truth import BoolArray, TruthArray
from kl_audit.quantities.base import Quantity, Side
from kl_audit.sweep import padded

#: Results are asked for in arrays of one length, so that a compiled mode compiles once.
LENGTH = 4096


def columns_at(quantity: Quantity, fmt: Format, d: FloatArray) -> tuple[FloatArray, ...]:
    """Return inputs whose log-ratio is exactly d: for a pair, one of the two log-probabilities is 0."""
    if len(quantity.inputs) == 1:
        return (d,)
    wide = d.astype(np.float64)
    policy = fmt.cast(np.minimum(-wide, 0.0))
    named = {"policy": policy, "old": policy, "reference": fmt.cast(np.minimum(wide, 0.0))}
    return tuple(named[name] for name in quantity.inputs)


def results_at(evaluate: Evaluate, quantity: Quantity, fmt: Format, d: FloatArray) -> Float64Array:
    """Return the candidate's results along d, as float64."""
    columns = columns_at(quantity, fmt, d)
    parts = [
        padded(evaluate, tuple(c[i : i + LENGTH] for c in columns), LENGTH) for i in range(0, len(d), LENGTH)
    ]
    wide: Float64Array = np.concatenate(parts).astype(np.float64)
    return wide


def truth_at(side: Side, quantity: Quantity, fmt: Format, result: Format, d: FloatArray) -> TruthArray:
    """Return the truth along d, for results in the format ``result``."""
    columns = columns_at(quantity, fmt, d)
    return side.truth(tuple(c.astype(np.float64) for c in columns), result)


def magnitudes(fmt: Format, low: float, high: float, count: int) -> FloatArray:
    """Return positive values of the format in [low, high], ascending: all, or about ``count``."""
    if fmt.bits == 16:
        values = fmt.finite_values(fmt.nonnegative_count)
        wide = values.astype(np.float64)
        kept: FloatArray = values[(wide >= low) & (wide <= high)]
        return kept
    low, high = max(low, fmt.smallest_normal), min(high, fmt.largest)
    logs = np.exp(np.linspace(np.log(low), np.log(high), count))
    steps = np.arange(1, 513) / 4
    both = np.concatenate([logs, steps[(steps >= low) & (steps <= high)], [low, high]])
    cast = fmt.cast(np.clip(both, low, high))
    out: FloatArray = np.unique(cast.astype(np.float64)).astype(fmt.dtype)
    return out


def between(fmt: Format, low: float, high: float, count: int) -> FloatArray:
    """Return values of the format from low to high (both positive), ends excluded: all, or ``count``."""
    first, last = (int(fmt.cast([x]).view(fmt.uint)[0]) for x in (low, high))
    inner = last - first - 1
    if inner <= 0:
        return fmt.cast([])
    if inner <= count:
        patterns = np.arange(first + 1, last, dtype=np.uint64)
    else:
        patterns = first + 1 + (np.arange(count, dtype=np.uint64) * np.uint64(inner)) // np.uint64(count)
    values: FloatArray = patterns.astype(fmt.uint).view(fmt.dtype)  # ascending and distinct as made
    return values


def first_true(fmt: Format, low: float, high: float, holds: Callable[[FloatArray], BoolArray]) -> float:
    """Return the first value of the format in (low, high] with a property that high has.

    By section: the first where the property begins once; else one where it does.
    """
    while len(inner := between(fmt, low, high, 64)):
        inside = np.flatnonzero(holds(inner))
        if len(inside):
            i = int(inside[0])
            high = float(inner[i])
            low = float(inner[i - 1]) if i else low
        else:
            low = float(inner[-1])
    return high
