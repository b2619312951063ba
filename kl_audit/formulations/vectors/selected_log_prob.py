"""The log-probability of one token, five ways.

``log-of-softmax`` is -inf once the probability underflows.  ``lse-subtract`` rounds the normaliser at
the size of the logits: for (64, 51) in float32 logsumexp is 64 and the result 0 instead of -2.26e-6
(verl pull request 7855).  ``library`` shifts first, yet forms log(1 + rest): absolute error u, so 0 for
rest < u.

``others`` never forms 1 + rest.  With D = log sum_{j != i} e**(z_j - z_i) the result is -softplus(D).
The differences are exact or rounded once, so D has an absolute error of a few u (1 + |D|), and as |d log
softplus(D) / dD| <= 1 so has the result, relatively: about |D| u, 4e-6 at D = -60 in float32, also where
the result is -1e-26.  The gradient is attached: sigmoid(D) for the token itself, -p_j for the others,
each without a cancellation.
"""

from __future__ import annotations

import math
from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.exponentials import (
    attach,
    entry,
    exponentials,
    positions,
    widen,
)

NAME = "selected-log-prob"


def log_of_softmax(xp: Any, logits: Any, index: Any) -> Any:
    """Evaluate log(softmax(z)[i])."""
    return xp.log(entry(xp, xp.softmax(logits), index))


def library(xp: Any, logits: Any, index: Any) -> Any:
    """Evaluate log_softmax(z)[i] in the dtype."""
    return entry(xp, xp.log_softmax(logits), index)


def lse_subtract(xp: Any, logits: Any, index: Any) -> Any:
    """Evaluate z_i - logsumexp(z) in float32."""
    z = widen(xp, logits)
    return entry(xp, z, index) - xp.logsumexp(z)


def upcast(xp: Any, logits: Any, index: Any) -> Any:
    """Evaluate log_softmax(float32(z))[i] and keep it in float32."""
    return entry(xp, xp.log_softmax(widen(xp, logits)), index)


def others(xp: Any, logits: Any, index: Any) -> Any:
    """Evaluate -softplus(log sum_{j != i} e**(z_j - z_i))."""
    z = widen(xp, logits)
    row = xp.stop_gradient(z)
    own = entry(xp, row, index)
    base = xp.where(xp.isfinite(own), own, xp.constant(0.0, z))
    hit = positions(xp, row) == (index if isinstance(index, int) else xp.like(index, z))
    rest = xp.where(hit, xp.constant(-math.inf, z), row - base)
    e = exponentials(xp, rest)
    d = e.top + xp.log1p(e.rest)
    value = xp.where(xp.isfinite(own), -xp.softplus(d), own)
    gradient = xp.where(hit, xp.sigmoid(d), -exponentials(xp, row).probs)
    return attach(xp, value, (gradient, z))


VECTOR_FORMULATION = (
    VectorFormulation("log-of-softmax", NAME, log_of_softmax, "log(softmax(z)[i])", "common"),
    VectorFormulation("library", NAME, library, "log_softmax(z)[i]", "torch, jax"),
    VectorFormulation(
        "lse-subtract", NAME, lse_subtract, "float32(z)[i] - logsumexp(float32(z))",
        "verl pull request 7855 (chunked path), TRL selective_log_softmax",
    ),
    VectorFormulation("upcast", NAME, upcast, "log_softmax(float32(z))[i]", "TRL, verl"),
    VectorFormulation("others", NAME, others, "-softplus(lse_{j != i}(z_j - z_i))", "kl-audit", True),
)  # fmt: skip
