"""The Jensen-Shannon divergence of two rows of logits, between 0 and log 2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kl_audit.formats import Format
from kl_audit.quantities.generators import pairs
from kl_audit.quantities.vector_base import Case, Input, VectorQuantity
from kl_audit.quantities.vectors.support import SIZES, STUDENT, TEACHER, proportional, support, zero


def reference(ops: Any, student: Any, teacher: Any) -> Any:
    """Return (KL(s || m) + KL(t || m)) / 2 with m = (s + t) / 2.

    A token that only one side can draw adds log 2 times half its probability.
    """
    on_s, on_t = support(ops, student), support(ops, teacher)
    both = np.intersect1d(on_s, on_t)
    if len(both) == len(on_s) == len(on_t) and proportional(ops, student, teacher, both):
        return zero(ops, student)
    log_2 = ops.log(ops.constant(2, student))
    total = zero(ops, student)
    normalisers = [ops.logsumexp(ops.take(z, on)) for z, on in ((student, on_s), (teacher, on_t))]
    if len(both):
        log_s = ops.take(student, both) - normalisers[0]
        log_t = ops.take(teacher, both) - normalisers[1]
        s, t = ops.exp(log_s), ops.exp(log_t)
        log_m = ops.log(s + t) - log_2
        total = total + ops.sum(s * (log_s - log_m) + t * (log_t - log_m))
    for z, on, normaliser in ((student, on_s, normalisers[0]), (teacher, on_t, normalisers[1])):
        alone = np.setdiff1d(on, both)
        if len(alone):
            total = total + log_2 * ops.sum(ops.exp(ops.take(z, alone) - normaliser))
    return total / 2


def cases(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Case]:
    """Yield every kind of pair, and one of rows with nothing in common."""
    for pair in pairs(fmt, rng, size):
        yield Case(
            f"{pair.name}, V={size}", {"student": pair.student, "teacher": pair.teacher}, pair.tag, size
        )
    first = np.arange(size) < size // 2
    z = np.where(first, 0.0, -np.inf)
    yield Case(
        f"no token in common, V={size}", {"student": z, "teacher": np.where(first, -np.inf, 0.0)}, "", size
    )


VECTOR = VectorQuantity(
    name="jsd",
    summary="(KL(s || m) + KL(t || m)) / 2, m = (s + t) / 2, of logits",
    inputs=(Input("student", STUDENT), Input("teacher", TEACHER, differentiated=False)),
    reference=reference,
    cases=cases,
    sizes=SIZES,
    lower=lambda case: 0.0,
    upper=lambda case: math.log(2),
    zero_on_identical=True,
)
