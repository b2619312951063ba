"""log sum e**z: unshifted, the library's, in float32, and with the small part of the sum kept.

``naive`` overflows above z = 88.7 in float32 and bfloat16 and 11.09 in float16.  ``max-log1p`` writes
the sum as 1 + rest with the 1 of the greatest logit: log1p(rest) keeps rest below u, which log(1 + rest)
loses, so the result is right to u where the greatest logit is 0 and the truth is as small as e**-60.
Its gradient is softmax(z), attached.
"""

from __future__ import annotations

from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.exponentials import attach, exponentials, widen


def naive(xp: Any, logits: Any) -> Any:
    """Evaluate log(sum(exp(z)))."""
    return xp.log(xp.sum(xp.exp(logits)))


def library(xp: Any, logits: Any) -> Any:
    """Call the framework's logsumexp."""
    return xp.logsumexp(logits)


def upcast(xp: Any, logits: Any) -> Any:
    """Call it in float32 and round back."""
    return xp.like(xp.logsumexp(widen(xp, logits)), logits)


def max_log1p(xp: Any, logits: Any) -> Any:
    """Evaluate max z + log1p(sum of the others)."""
    z = widen(xp, logits)
    e = exponentials(xp, z)
    return attach(xp, e.top + xp.log1p(e.rest), (e.probs, z))


VECTOR_FORMULATION = (
    VectorFormulation("naive", "logsumexp", naive, "log(sum(exp(z)))", "textbook definition"),
    VectorFormulation("library", "logsumexp", library, "logsumexp(z)", "torch, jax"),
    VectorFormulation("upcast", "logsumexp", upcast, "logsumexp(float32(z)), rounded back", "common"),
    VectorFormulation("max-log1p", "logsumexp", max_log1p, "m + log1p(sum e^(z - m) - 1)", "kl-audit", True),
)
