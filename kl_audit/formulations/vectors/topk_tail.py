"""Forward KL over the teacher's top-k with a tail bucket, S = 1 - sum s, as it was written.

The tail mass 1 - sum s is a difference of nearly equal numbers wherever the student is concentrated on
the ids: an error of u in the sum is one of u / S in S, and an S that falls to the floor has no gradient.

``rounded`` rounds the selected log-probabilities back to the dtype of the logits: for bfloat16 logits
(0, 0, -9, -9) the student's mass on ids 0 and 1 becomes 1.0017, the tail negative, and the gradient
points the other way.  ``lse-subtract`` keeps float32 but subtracts a logsumexp: for (64, 51) that is 64,
the mass 1, the tail gone.  ``library`` uses log_softmax in float32, the repair of verl pull request
7855.
"""

from __future__ import annotations

from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.exponentials import NARROW, widen
from kl_audit.quantities.vectors.kl_topk_tail import FLOOR

NAME = "kl-topk-tail"


def teacher_terms(xp: Any, probs: Any, log_s: Any) -> Any:
    """Return sum t (log t - log s), where() before the arithmetic for t = 0."""
    zero, used = xp.constant(0.0, probs), probs > 0
    log_t = xp.log(xp.where(used, probs, xp.constant(1.0, probs)))
    return xp.sum(probs * (log_t - xp.where(used, log_s, zero)))


def tail_term(xp: Any, tail: Any, mass: Any) -> Any:
    """Return T (log T - log max(S, FLOOR)), 0 for T = 0."""
    used = tail > 0
    log_t = xp.log(xp.where(used, tail, xp.constant(1.0, tail)))
    bucket = tail * (log_t - xp.log(xp.clip(mass, FLOOR, None)))
    return xp.where(used, bucket, xp.constant(0.0, tail))


def by_complement(xp: Any, log_s: Any, probs: Any) -> Any:
    """Return the loss with both tails as 1 - sum."""
    probs = xp.stop_gradient(probs)
    used = probs > 0
    mass = 1 - xp.sum(xp.exp(log_s))
    log_s = xp.where(used, log_s, xp.constant(0.0, log_s))
    return teacher_terms(xp, probs, log_s) + tail_term(xp, 1 - xp.sum(probs), mass)


def rounded(xp: Any, student: Any, teacher_probs: Any, ids: Any) -> Any:
    """Round the selected log-probabilities to the dtype of the logits."""
    log_s = xp.take(xp.log_softmax(widen(xp, student)), ids)
    held = xp.format_of(student)
    if held in NARROW:
        log_s = widen(xp, xp.cast(log_s, held))
    return by_complement(xp, log_s, widen(xp, teacher_probs))


def lse_subtract(xp: Any, student: Any, teacher_probs: Any, ids: Any) -> Any:
    """Subtract logsumexp from the selected logits in float32."""
    z = widen(xp, student)
    return by_complement(xp, xp.take(z, ids) - xp.logsumexp(z), widen(xp, teacher_probs))


def library(xp: Any, student: Any, teacher_probs: Any, ids: Any) -> Any:
    """Select from log_softmax in float32."""
    log_s = xp.take(xp.log_softmax(widen(xp, student)), ids)
    return by_complement(xp, log_s, widen(xp, teacher_probs))


_PR = "verl pull request 7855"

VECTOR_FORMULATION = (
    VectorFormulation("rounded", NAME, rounded, "lp = log_softmax(z)[ids], rounded; S = 1 - sum e^lp", _PR),
    VectorFormulation(
        "lse-subtract", NAME, lse_subtract, "lp = z[ids] - logsumexp(z); S = 1 - sum e^lp", _PR
    ),
    VectorFormulation("library", NAME, library, "lp = log_softmax(float32(z))[ids]; S = 1 - sum e^lp", _PR),
)
