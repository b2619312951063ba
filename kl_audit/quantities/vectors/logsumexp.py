"""log sum e**z of one row of logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kl_audit.formats import Format
from kl_audit.quantities.generators import rows
from kl_audit.quantities.vector_base import Case, Input, VectorQuantity
from kl_audit.quantities.vectors.support import SIZES, support


def reference(ops: Any, logits: Any) -> Any:
    """Return log sum e**z over the logits that are not -inf; -inf where none is left."""
    kept = support(ops, logits)
    return ops.logsumexp(ops.take(logits, kept)) if len(kept) else ops.take(logits, 0)


def cases(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Case]:
    """Yield every kind of row, and one that is -inf throughout."""
    for row in rows(fmt, rng, size):
        yield Case(f"{row.name}, V={len(row.logits)}", {"logits": row.logits}, row.tag, len(row.logits))
    yield Case(f"all -inf, V={size}", {"logits": np.full(size, -np.inf)}, "infinite", size)


def flat(fmt: Format, n: int) -> Case:
    """Return n equal logits: the result is log n."""
    return Case(f"flat, V={n}", {"logits": np.zeros(n)}, "", n)


VECTOR = VectorQuantity(
    name="logsumexp",
    summary="log sum_i exp(z_i)",
    inputs=(Input("logits", "one row"),),
    reference=reference,
    cases=cases,
    sizes=SIZES,
    lower=lambda case: float(np.max(case.inputs["logits"])),
    flat=flat,
)
