"""The entropy of softmax(z), five ways.

``naive`` and ``lse-minus-mean`` meet 0 times -inf at masked logits, and ``where-safe`` repairs the value
but not the gradient in frameworks that differentiate the discarded product (TRL issue 7221).  All of
them, in float32 too, lose the entropy of a concentrated row: log(1 + rest) is 0 for rest < u, where the
truth is about rest (1 + gap).

``shifted-terms`` adds only non-negative terms, none of them lost: with w = z - max z,

    H = log1p(rest) + sum p (-w),

so the relative error is a few u (1 + max |w|) / max |w| at any size of H.  Its gradient dH/dz_k = -p_k
(log p_k + H) = -p_k (w_k - sum p w) is attached; masked logits have p = 0 and w set to 0 before any
product.
"""

from __future__ import annotations

from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.exponentials import attach, exponentials, finite_or_zero, widen


def naive(xp: Any, logits: Any) -> Any:
    """Evaluate -sum p log p with log p from log_softmax."""
    log_p = xp.log_softmax(logits)
    return -xp.sum(xp.exp(log_p) * log_p)


def lse_minus_mean(xp: Any, logits: Any) -> Any:
    """Evaluate logsumexp(z) - sum p z."""
    return xp.logsumexp(logits) - xp.sum(xp.softmax(logits) * logits)


def where_safe(xp: Any, logits: Any) -> Any:
    """Evaluate -sum p log p with 0 where p is 0."""
    log_p = xp.log_softmax(logits)
    p = xp.exp(log_p)
    return -xp.sum(xp.where(p > 0, p * log_p, xp.constant(0.0, logits)))


def upcast(xp: Any, logits: Any) -> Any:
    """Evaluate the naive form in float32."""
    return naive(xp, widen(xp, logits))


def shifted_terms(xp: Any, logits: Any) -> Any:
    """Evaluate log1p(rest) + sum p (max z - z)."""
    z = widen(xp, logits)
    e = exponentials(xp, z)
    w = finite_or_zero(xp, e.shifted)
    mean = xp.sum(e.probs * w)
    return attach(xp, xp.log1p(e.rest) - mean, (-e.probs * (w - mean), z))


VECTOR_FORMULATION = (
    VectorFormulation("naive", "entropy", naive, "-sum(exp(lp) * lp), lp = log_softmax(z)", "TRL issue 7221"),
    VectorFormulation(
        "lse-minus-mean", "entropy", lse_minus_mean, "logsumexp(z) - sum(softmax(z) * z)",
        "verl entropy_from_logits",
    ),
    VectorFormulation("where-safe", "entropy", where_safe, "-sum(where(p > 0, p * lp, 0))", "TRL issue 7221"),
    VectorFormulation("upcast", "entropy", upcast, "-sum(exp(lp) * lp) in float32", "common"),
    VectorFormulation(
        "shifted-terms", "entropy", shifted_terms, "log1p(rest) + sum p (max z - z)", "kl-audit", True
    ),
)  # fmt: skip
