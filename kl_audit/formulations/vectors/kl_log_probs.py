"""sum e**a (a - b) of log-probabilities: plain, in float32, and with masked tokens left out first.

-inf on both sides is inf - inf in the first two.  ``selected`` replaces both numbers by 0 where e**a is
0, before any arithmetic, and so has no NaN in value or gradient; a token that only the first row can
draw still gives inf.  It sums in float32.
"""

from __future__ import annotations

from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.exponentials import widen
from kl_audit.formulations.vectors.kl import teacher_first


def naive(xp: Any, first: Any, second: Any) -> Any:
    """Evaluate sum(exp(a) * (a - b)) in the dtype."""
    return xp.sum(xp.exp(first) * (first - second))


def upcast(xp: Any, first: Any, second: Any) -> Any:
    """Evaluate it in float32."""
    return naive(xp, widen(xp, first), widen(xp, second))


def selected(xp: Any, first: Any, second: Any) -> Any:
    """Evaluate it in float32 over the tokens that the first row can draw."""
    a, b = widen(xp, first), widen(xp, second)
    kept = xp.isfinite(a)
    zero = xp.constant(0.0, a)
    a, b = xp.where(kept, a, zero), xp.where(kept, b, zero)
    return xp.sum(xp.where(kept, xp.exp(a), zero) * (a - b))


_STOCK = (
    ("naive", naive, "sum(exp(a) * (a - b))", "optax kl_divergence_with_log_targets"),
    ("upcast", upcast, "sum(exp(a) * (a - b)) in float32", "common"),
    ("selected", selected, "the same with where() before the arithmetic", "kl-audit"),
)

VECTOR_FORMULATION = (
    *(VectorFormulation(n, "kl-log-probs-forward", teacher_first(f), t, by, n == "selected")
      for n, f, t, by in _STOCK),
    *(VectorFormulation(n, "kl-log-probs-reverse", f, t, by, n == "selected") for n, f, t, by in _STOCK),
)  # fmt: skip
