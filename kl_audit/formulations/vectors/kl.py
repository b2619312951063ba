"""The full-vocabulary KL divergence of logits as trainers write it, in both directions.

sum p (log p - log q) adds terms of both signs and of first order to a result of second order: for rows
that differ by e the truth is about e^2 / 2 and the error about u, so it is below 0 as often as not once
e < sqrt(u) = 2e-4 in float32 and 6e-2 in bfloat16.  ``probs`` is the library's kl_div form, t log t - t
x with log t recomputed from the rounded t.  Masked logits (-inf on both sides) give inf - inf.
"""

from __future__ import annotations

from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.exponentials import widen
from kl_audit.quantities.base import Candidate


def naive(xp: Any, p_logits: Any, q_logits: Any) -> Any:
    """Evaluate sum p (log p - log q) in the dtype."""
    log_p, log_q = xp.log_softmax(p_logits), xp.log_softmax(q_logits)
    return xp.sum(xp.exp(log_p) * (log_p - log_q))


def probs(xp: Any, p_logits: Any, q_logits: Any) -> Any:
    """Evaluate sum (p log p - p log q) from probabilities, as kl_div does."""
    p = xp.softmax(p_logits)
    return xp.sum(xp.xlogy(p, p) - p * xp.log_softmax(q_logits))


def upcast(xp: Any, p_logits: Any, q_logits: Any) -> Any:
    """Evaluate the naive form in float32."""
    return naive(xp, widen(xp, p_logits), widen(xp, q_logits))


def teacher_first(form: Candidate) -> Candidate:
    """Return KL(teacher || student) from a form of KL(p || q)."""

    def forward(xp: Any, student: Any, teacher: Any) -> Any:
        return form(xp, teacher, student)

    return forward


_STOCK = (
    ("naive", naive, "sum(exp(lp) * (lp - lq))", "TRL, verl"),
    ("probs", probs, "sum(p * log(p) - p * lq)", "torch.nn.functional.kl_div"),
    ("upcast", upcast, "sum(exp(lp) * (lp - lq)) in float32", "common"),
)

VECTOR_FORMULATION = (
    *(VectorFormulation(n, "kl-forward", teacher_first(f), text, by) for n, f, text, by in _STOCK),
    *(VectorFormulation(n, "kl-reverse", f, text, by) for n, f, text, by in _STOCK),
)
