"""Masked sums and means: what becomes of the masked slots, of an empty row and of a long one.

``multiply-after`` makes NaN of a masked inf or NaN, since 0 times either is NaN.  ``where-before``
selects first: the derivative of a slot that is not selected is exactly 0.  ``divide-by-count`` is 0/0 on
an empty row. ``sequential`` adds one number at a time in the dtype, and stalls: a running sum of ones
stops at 2^p, 256 in bfloat16 and 2048 in float16.  ``where-upcast`` selects first and sums in float32.
"""

from __future__ import annotations

from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.exponentials import widen
from kl_audit.formulations.vectors.running import running_sum
from kl_audit.quantities.base import Candidate


def _kept(xp: Any, values: Any, mask: Any) -> Any:
    return xp.where(mask, values, xp.constant(0.0, values))


def _count(xp: Any, values: Any, mask: Any) -> Any:
    return xp.clip(xp.sum(xp.like(mask, values)), 1, None)


def multiply_after(xp: Any, values: Any, mask: Any) -> Any:
    """Evaluate sum(x * m)."""
    return xp.sum(values * xp.like(mask, values))


def where_before(xp: Any, values: Any, mask: Any) -> Any:
    """Evaluate sum(where(m, x, 0)) in the dtype."""
    return xp.sum(_kept(xp, values, mask))


def sequential(xp: Any, values: Any, mask: Any) -> Any:
    """Add where(m, x, 0) one by one in the dtype; at most LONGEST tokens."""
    return running_sum(_kept(xp, values, mask))


def where_upcast(xp: Any, values: Any, mask: Any) -> Any:
    """Evaluate sum(where(m, x, 0)) in float32."""
    return where_before(xp, widen(xp, values), mask)


def unclamped(xp: Any, values: Any, mask: Any) -> Any:
    """Evaluate sum(where(m, x, 0)) / sum(m)."""
    return where_before(xp, values, mask) / xp.sum(xp.like(mask, values))


def mean_of(total: Candidate) -> Candidate:
    """Return the mean that divides a masked sum by max(1, count), in the dtype of the values."""

    def mean(xp: Any, values: Any, mask: Any) -> Any:
        return total(xp, values, mask) / _count(xp, values, mask)

    return mean


def mean_upcast(xp: Any, values: Any, mask: Any) -> Any:
    """Evaluate the clamped mean in float32, the count too."""
    return mean_of(where_before)(xp, widen(xp, values), mask)


_SUMS = (
    ("multiply-after", multiply_after, "sum(x * m)", "prime-rl pull request 2084, NeMo-RL pull request 4120"),
    ("where-before", where_before, "sum(where(m, x, 0))", "verl agg_loss"),
    ("sequential", sequential, "running sum of where(m, x, 0)", "candle pull request 3718"),
)

VECTOR_FORMULATION = (
    *(VectorFormulation(n, "masked-sum", f, text, by) for n, f, text, by in _SUMS),
    VectorFormulation(
        "where-upcast", "masked-sum", where_upcast, "sum(where(m, float32(x), 0))", "kl-audit", True
    ),
    *(VectorFormulation(n, "masked-mean", mean_of(f), f"{text} / max(1, sum(m))", by)
      for n, f, text, by in _SUMS),
    VectorFormulation(
        "divide-by-count", "masked-mean", unclamped, "sum(where(m, x, 0)) / sum(m)", "NeMo-RL issue 158"
    ),
    VectorFormulation(
        "where-upcast", "masked-mean", mean_upcast, "sum(where(m, float32(x), 0)) / max(1, sum(m))",
        "kl-audit", True,
    ),
)  # fmt: skip
