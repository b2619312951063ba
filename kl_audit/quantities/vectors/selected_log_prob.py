"""The log-probability of one token: log_softmax(z)[i], at most 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kl_audit.formats import Format
from kl_audit.quantities.generators import Row, rows
from kl_audit.quantities.vector_base import Case, Input, VectorQuantity
from kl_audit.quantities.vectors.support import SIZES, support, zero


def reference(ops: Any, logits: Any, index: Any) -> Any:
    """Return z_i - log sum e**z; -inf where z_i is, exactly 0 where no other token has mass."""
    i, kept = int(index), support(ops, logits)
    if i not in kept:
        return ops.take(logits, i)
    if len(kept) == 1:
        return zero(ops, logits)
    return ops.take(logits, i) - ops.logsumexp(ops.take(logits, kept))


def _indices(row: Row) -> Iterator[tuple[str, int]]:
    """Name the tokens worth trying: the most and the least probable of those with mass, and the first."""
    order = np.argsort(row.logits, kind="stable")
    finite = order[np.isfinite(row.logits[order])]
    chosen = {"top": int(finite[-1]), "least": int(finite[0]), "first": 0}
    seen: set[int] = set()
    for name, i in chosen.items():
        if i not in seen and np.isfinite(row.logits[i]):
            seen.add(i)
            yield name, i


def cases(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Case]:
    """Yield every kind of row with its top, its least and its first token; then a masked token."""
    for row in rows(fmt, rng, size):
        v = len(row.logits)
        for name, i in _indices(row):
            yield Case(f"{row.name}, {name} token, V={v}", {"logits": row.logits, "index": i}, row.tag, v)
    if size > 1:
        z = np.where(np.arange(size) == 1, -np.inf, 0.0)
        yield Case(f"a token at -inf, V={size}", {"logits": z, "index": 1}, "infinite", size)


def flat(fmt: Format, n: int) -> Case:
    """Return n equal logits: the result is -log n."""
    return Case(f"flat, V={n}", {"logits": np.zeros(n), "index": 0}, "", n)


VECTOR = VectorQuantity(
    name="selected-log-prob",
    summary="z_i - log sum_j exp(z_j)",
    inputs=(Input("logits", "one row"), Input("index", "the token that was sampled", "index")),
    reference=reference,
    cases=cases,
    sizes=SIZES,
    upper=lambda case: 0.0,
    flat=flat,
)
