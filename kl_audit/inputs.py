"""Inputs of a quantity made from a grid of log-ratios, and the special values that always run."""

from __future__ import annotations

import itertools
import math

import numpy as np

from kl_audit.errors import UsageError
from kl_audit.formats import FloatArray, Format
from kl_audit.grids import Grid, Points
from kl_audit.quantities.base import Quantity

#: A pair is drawn with |policy| up to 2**SPREAD times |d|: from exact subtractions to rounded ones.
SPREAD = 8


def from_log_ratios(
    quantity: Quantity, fmt: Format, d: FloatArray, key: tuple[int, ...]
) -> tuple[FloatArray, ...]:
    """Return inputs of ``quantity`` that realise the log-ratios d as nearly as the format can.

    For a quantity of log-probabilities all inputs are <= 0: policy is drawn at up to 2**8 times |d|,
    reference is policy + d rounded to the format, old is within 2 of policy.  Inputs are ordered by
    the log-ratio that results.
    """
    if len(quantity.inputs) == 1:
        return (d,)
    rng = np.random.default_rng(np.random.SeedSequence(key))
    wide = d.astype(np.float64)
    # exp(policy - old) has no range beyond this, and log-probabilities none either
    wide = np.clip(wide, -fmt.largest / 4, fmt.largest / 4)
    with np.errstate(over="ignore"):
        size = np.abs(wide) * 2.0 ** rng.uniform(0, SPREAD, len(d))
    policy = fmt.cast(-np.minimum(size + np.maximum(wide, 0), fmt.largest / 2))
    reference = fmt.cast(np.minimum(policy.astype(np.float64) + wide, 0.0))
    columns = {"policy": policy, "reference": reference}
    if "old" in quantity.inputs:
        shift = rng.uniform(-2, 2, len(d))
        columns["old"] = fmt.cast(np.minimum(policy.astype(np.float64) + shift, 0.0))
    chosen = [columns[name] for name in quantity.inputs]
    order = np.argsort(quantity.log_ratio(*(c.astype(np.float64) for c in chosen)), kind="stable")
    return tuple(c[order] for c in chosen)


def from_rows(quantity: Quantity, fmt: Format, grid: Points) -> tuple[FloatArray, ...]:
    """Return given rows as inputs of a quantity; raises UsageError when the columns do not fit."""
    width = len(grid.values[0])
    if width != len(quantity.inputs):
        raise UsageError(
            f"grid {grid.origin}: {width} values a line, but {quantity.name} takes "
            f"{len(quantity.inputs)} ({', '.join(quantity.inputs)})."
        )
    columns = [fmt.cast([row[i] for row in grid.values]) for i in range(width)]
    order = np.argsort(quantity.log_ratio(*(c.astype(np.float64) for c in columns)), kind="stable")
    return tuple(c[order] for c in columns)


def fits(quantity: Quantity, grid: Grid) -> str | None:
    """Return why a grid cannot serve a quantity, or None where it can."""
    if len(quantity.inputs) > 1 and grid.kind == "exhaustive":
        return (
            f"an exhaustive grid of {quantity.name} would be every tuple of "
            f"({', '.join(quantity.inputs)}); use --grid decades"
        )
    return None


def specials(quantity: Quantity, fmt: Format) -> tuple[FloatArray, ...]:
    """Return the special inputs: zeros, infinities, nan, smallest, largest, where exp overflows."""
    edge = fmt.cast([math.log(fmt.largest)])
    pattern = edge.view(fmt.uint).astype(np.int64)
    near = np.concatenate([(pattern + k).astype(fmt.uint) for k in (-2, -1, 0, 1, 2)])
    edges = near.view(fmt.dtype).astype(np.float64).tolist()
    if len(quantity.inputs) == 1:
        tiny, normal, huge = fmt.smallest, fmt.smallest_normal, fmt.largest
        values = [0.0, -0.0, tiny, -tiny, normal, -normal, huge, -huge, *edges]
        return (fmt.cast([*values, math.inf, -math.inf, math.nan]),)
    if not set(quantity.inputs) <= {"policy", "reference", "old"}:
        plain = itertools.islice(itertools.product((1.0, 0.0, -1.0), repeat=len(quantity.inputs)), 27)
        return tuple(fmt.cast(c) for c in zip(*plain, strict=True))
    rows = {
        "policy": [-0.0, -1.0, -1.0, -fmt.smallest, -16.0, -16.0, *(-e for e in edges)],
        "reference": [-0.0, -1.0, -1.0, -fmt.smallest, -16.0, -1.0, *(-0.0 for _ in edges)],
        "old": [-0.0, -1.0, -2.0, -fmt.smallest, -16.0, -16.0, *(-e for e in edges)],
    }
    return tuple(fmt.cast(rows[name]) for name in quantity.inputs)
