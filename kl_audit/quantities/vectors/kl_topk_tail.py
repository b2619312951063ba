"""Forward KL over the teacher's top-k tokens with one bucket for all others.

    sum_k t_i (log t_i - log s_i) + T (log T - log S),   T = 1 - sum t_i,   S = 1 - sum s_i

s = softmax(student); S is the student's mass on all other tokens, clamped below at FLOOR: the clamp is
part of the objective, so the tail's gradient is 0 where it is active.  T is exact in the stored
probabilities. Terms with t_i = 0 or T = 0 are 0.  The teacher's side is data and is not differentiated.
A loss of this form, and how rounding takes its tail away, is in verl pull request 7855.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from kl_audit.formats import Float64Array, Format
from kl_audit.quantities.generators import concentrated, hidden
from kl_audit.quantities.vector_base import Case, Input, VectorQuantity, rounded
from kl_audit.quantities.vectors.support import STUDENT, support, zero

#: The least student tail mass: below it the tail has no gradient.
FLOOR = 1e-6

#: Teacher probabilities are multiples of 1 / GRAIN, so that T is what a case says in every format.
GRAIN = 4096

#: The most grains one token may have: 255 / 4096 is a bfloat16 number, and so is 255 / 256.
MOST = 255

Ids = npt.NDArray[np.int64]


def reference(ops: Any, student: Any, teacher_probs: Any, ids: Any) -> Any:
    """Return the loss; inf where a token with t_i > 0 has a student logit of -inf."""
    ids = np.asarray(ids, dtype=np.int64)
    teacher_probs = ops.stop_gradient(teacher_probs)
    every = support(ops, student)
    normaliser = ops.logsumexp(ops.take(student, every))
    total = zero(ops, student)
    tail = ops.constant(1, student)
    if len(ids):
        tail = tail - ops.sum(teacher_probs)
        weighted = np.flatnonzero(np.asarray(teacher_probs > 0))
        if not set(ids[weighted]) <= set(every):
            return ops.constant(np.inf, student)
        if len(weighted):
            t = ops.take(teacher_probs, weighted)
            log_s = ops.take(student, ids[weighted]) - normaliser
            total = ops.sum(t * (ops.log(t) - log_s))
    if bool(np.all(np.asarray(tail == 0))):
        return total
    others = np.setdiff1d(every, ids)
    mass = zero(ops, student)
    if len(others):
        mass = ops.sum(ops.exp(ops.take(student, others) - normaliser))
    return total + tail * (ops.log(tail) - ops.log(ops.clip(mass, FLOOR, None)))


def _grains(rng: np.random.Generator, k: int, total: int) -> Float64Array:
    """Split ``total`` grains over k tokens, at random, in numbers that every format holds."""
    weights = rng.exponential(1.0, k)
    grains: Float64Array = np.floor(weights / weights.sum() * total)
    grains = np.where(grains > MOST, np.floor(grains / 16) * 16, grains)
    grains = np.minimum(grains, MOST * 16)
    return grains / GRAIN


def _whole(rng: np.random.Generator, size: int) -> Float64Array:
    """Return probabilities of a vocabulary that sum to exactly 1, in numbers that every format holds."""
    grains: Float64Array = np.full(size, 1 / 8)
    if size > 8:  # the second token still takes up to 31 grains, and must not exceed MOST
        grains = np.minimum(np.floor(rng.dirichlet(np.ones(size)) * GRAIN / 2), MOST - 31) / GRAIN
    rest = 1 - float(grains[1:].sum())
    grains[0] = np.floor(rest * 128) / 128
    grains[1] += rest - grains[0]
    return grains


def _top(logits: Float64Array, k: int) -> Ids:
    return np.sort(np.argsort(-logits, kind="stable")[:k]).astype(np.int64)


def _of(fmt: Format, logits: Float64Array, ids: Ids) -> Float64Array:
    """Return softmax(logits) at ids as the format's numbers that sum to at most 1."""
    p = np.exp(logits - logits.max())
    chosen = (p / p.sum())[ids]
    held = rounded(fmt, chosen)
    while held.sum() > 1:
        held = rounded(fmt, held * (1 - 4 * fmt.u))
    return held


def _tail_logits(size: int, mass: float) -> Float64Array:
    """Return logits whose first half has all but about ``mass``."""
    z = np.zeros(size)
    k = size // 2
    z[k:] = np.log(mass / (1 - mass) * k / (size - k))
    return z


def _ordinary(
    fmt: Format, rng: np.random.Generator, size: int
) -> Iterator[tuple[str, Float64Array, Any, Ids]]:
    k = max(1, min(size // 2, 32))
    teacher = rng.normal(0, 2, size)
    ids = _top(teacher, k)
    probs = _of(fmt, teacher, ids)
    for s in (1.0, 4.0):
        yield f"normal, s={s:g}", rounded(fmt, rng.normal(0, s, size)), probs, ids
    yield "close to the teacher", rounded(fmt, teacher + rng.normal(0, 0.5, size)), probs, ids
    yield "shifted by 32", rounded(fmt, teacher + rng.normal(0, 1, size) + 32), probs, ids
    yield "uniform student", np.zeros(size), probs, ids
    for gap in (12.0, 20.0, 60.0):
        z = concentrated(fmt, rng, size, gap, int(ids[0]))
        yield f"student concentrated on a teacher token, gap {gap:g}", z, probs, ids
    worst = int(np.argmin(teacher))
    yield "mismatched supports, gap 20", concentrated(fmt, rng, size, 20.0, worst), probs, ids
    sharp = concentrated(fmt, rng, size, 6.0, int(ids[0]))
    yield "teacher concentrated", rounded(fmt, rng.normal(0, 1, size)), _of(fmt, sharp, ids), ids


def _edges(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[tuple[str, Float64Array, Any, Ids]]:
    student = rounded(fmt, rng.normal(0, 2, size))
    every = np.arange(size, dtype=np.int64)
    none, first = every[:0], every[:1]
    half = every[: size // 2]
    yield "no ids", student, np.zeros(0), none
    yield "one id", student, np.array([0.75]), first
    yield "one id with all of the teacher", student, np.array([1.0]), first
    if size <= GRAIN:
        yield "full vocabulary, T = 0", student, _whole(rng, size), every
    zeros = np.where(np.arange(len(half)) == 0, 0.5, 0.0)
    yield "teacher zeros among the ids", student, zeros, half
    probs = _grains(rng, len(half), GRAIN // 2)
    for mass in (1e-2, 1e-5, 3e-6, 4e-7, 1e-8):
        yield f"student tail about {mass:g}", rounded(fmt, _tail_logits(size, mass)), probs, half
    keep = np.arange(size) != size - 1
    if size > 2:
        yield "a token outside at -inf", hidden(student, keep), probs, half
    inside = np.arange(size) != 0
    if len(half) > 1:
        yield "a token of weight 0 at -inf", hidden(student, inside), np.where(half == 0, 0.0, probs), half


def _reported(fmt: Format, size: int) -> Iterator[tuple[str, Float64Array, Any, Ids]]:
    if size == 4:
        z, probs = np.array([0.0, 0.0, -9.0, -9.0]), rounded(fmt, np.array([0.45, 0.45]))
        yield "(0, 0, -9, -9)", z, probs, np.array([0, 1])
    if size == 2:
        yield "(64, 51)", np.array([64.0, 51.0]), np.array([0.875]), np.array([0])


def cases(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Case]:
    """Yield cases with the tail above, at and below its floor, away from the kink itself."""
    for part in (_ordinary(fmt, rng, size), _edges(fmt, rng, size), _reported(fmt, size)):
        for name, student, probs, ids in part:
            inputs = {"student": student, "teacher_probs": probs, "ids": ids}
            yield Case(f"{name}, V={size}", inputs, "", size)


def flat(fmt: Format, n: int) -> Case:
    """Return n equal logits of which one is an id, with half of the teacher's mass."""
    inputs = {"student": np.zeros(n), "teacher_probs": np.array([0.5]), "ids": np.array([0])}
    return Case(f"flat, V={n}", inputs, "", n)


VECTOR = VectorQuantity(
    name="kl-topk-tail",
    summary="sum_k t_i (log t_i - log s_i) + T (log T - log max(S, 1e-6))",
    inputs=(
        Input("student", STUDENT),
        Input("teacher_probs", "teacher probabilities of the ids", differentiated=False),
        Input("ids", "the teacher's top-k tokens", "index"),
    ),
    reference=reference,
    cases=cases,
    sizes=(2, 4, 64, 1000),
    lower=lambda case: -FLOOR,
    flat=flat,
)
