"""Sums and means over the tokens that a mask keeps.

What a masked slot holds is of no consequence: NaN and infinities there leave value and gradient alone.
The count is clamped to at least 1, so a row without tokens is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kl_audit.formats import Format
from kl_audit.quantities.generators import tokens
from kl_audit.quantities.vector_base import Case, Input, VectorQuantity
from kl_audit.quantities.vectors.support import COUNTS, zero


def masked_sum(ops: Any, values: Any, mask: Any) -> Any:
    """Return the sum of the values that the mask keeps."""
    kept = np.flatnonzero(np.asarray(mask))
    return ops.sum(ops.take(values, kept)) if len(kept) else zero(ops, values)


def masked_mean(ops: Any, values: Any, mask: Any) -> Any:
    """Return their mean; 0 where none is kept."""
    count = int(np.count_nonzero(np.asarray(mask)))
    return masked_sum(ops, values, mask) / max(count, 1)


def flat(fmt: Format, n: int) -> Case:
    """Return n values of 1, all kept."""
    return Case(f"flat, n={n}", {"values": np.ones(n), "mask": np.ones(n, dtype=bool)}, "", n)


def _empty(case: Case) -> float | None:
    return None if np.any(case.inputs["mask"]) else 0.0


_INPUTS = (Input("values", "one number per token"), Input("mask", "which tokens count", "mask"))

VECTOR = (
    VectorQuantity(
        name="masked-mean",
        summary="sum_i m_i x_i / max(1, sum_i m_i)",
        inputs=_INPUTS,
        reference=masked_mean,
        cases=tokens,
        sizes=COUNTS,
        lower=_empty,
        upper=_empty,
        flat=flat,
    ),
    VectorQuantity(
        name="masked-sum",
        summary="sum_i m_i x_i",
        inputs=_INPUTS,
        reference=masked_sum,
        cases=tokens,
        sizes=COUNTS,
        lower=_empty,
        upper=_empty,
        flat=flat,
    ),
)
