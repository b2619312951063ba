"""The entropy of softmax(z), between 0 and the logarithm of the number of tokens with mass."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kl_audit.formats import Format
from kl_audit.quantities.generators import rows
from kl_audit.quantities.vector_base import Case, Input, VectorQuantity
from kl_audit.quantities.vectors.support import SIZES, support, zero


def reference(ops: Any, logits: Any) -> Any:
    """Return -sum p log p over the tokens with mass; exactly 0 for a single one."""
    kept = support(ops, logits)
    if len(kept) == 1:
        return zero(ops, logits)
    log_p = ops.log_softmax(ops.take(logits, kept))
    return -ops.sum(ops.exp(log_p) * log_p)


def cases(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Case]:
    """Yield every kind of row."""
    for row in rows(fmt, rng, size):
        yield Case(f"{row.name}, V={len(row.logits)}", {"logits": row.logits}, row.tag, len(row.logits))


def flat(fmt: Format, n: int) -> Case:
    """Return n equal logits: the result is log n."""
    return Case(f"flat, V={n}", {"logits": np.zeros(n)}, "", n)


def _most(case: Case) -> float:
    return math.log(max(1, int(np.count_nonzero(np.isfinite(case.inputs["logits"])))))


VECTOR = VectorQuantity(
    name="entropy",
    summary="-sum_i p_i log p_i, p = softmax(z)",
    inputs=(Input("logits", "one row"),),
    reference=reference,
    cases=cases,
    sizes=SIZES,
    lower=lambda case: 0.0,
    upper=_most,
    flat=flat,
)
