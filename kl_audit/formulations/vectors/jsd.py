"""The Jensen-Shannon divergence of logits as it is written in the wild.

``naive`` forms the mixture in probability space: its logarithm is -inf where both sides are below
e**-104 (Liger-Kernel issue 1453).  ``log-space`` uses logaddexp and is better there, but like every sum
of signed first-order terms it loses nearly equal rows, and -inf on both sides gives NaN.
``mean-of-logs`` takes the mean of the log-probabilities for the logarithm of the mean (TRL issue 2202):
it can exceed log 2.
"""

from __future__ import annotations

from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.exponentials import LOG_2, widen


def naive(xp: Any, student: Any, teacher: Any) -> Any:
    """Evaluate (sum s log(s / m) + sum t log(t / m)) / 2 with m = (s + t) / 2 in probability space."""
    s, t = xp.softmax(student), xp.softmax(teacher)
    log_m = xp.log((s + t) / 2)
    log_s, log_t = xp.log_softmax(student), xp.log_softmax(teacher)
    return (xp.sum(s * (log_s - log_m)) + xp.sum(t * (log_t - log_m))) / 2


def _from_log_mixture(xp: Any, log_s: Any, log_t: Any, log_m: Any) -> Any:
    parts = (xp.sum(xp.exp(x) * (x - log_m)) for x in (log_s, log_t))
    return sum(parts) / 2


def log_space(xp: Any, student: Any, teacher: Any) -> Any:
    """Evaluate it with log m = logaddexp(log s, log t) - log 2."""
    log_s, log_t = xp.log_softmax(student), xp.log_softmax(teacher)
    log_m = xp.logaddexp(log_s, log_t) - xp.constant(LOG_2, log_s)
    return _from_log_mixture(xp, log_s, log_t, log_m)


def upcast(xp: Any, student: Any, teacher: Any) -> Any:
    """Evaluate the form in log space in float32."""
    return log_space(xp, widen(xp, student), widen(xp, teacher))


def mean_of_logs(xp: Any, student: Any, teacher: Any) -> Any:
    """Evaluate it with log m = (log s + log t) / 2, which is not the logarithm of a mixture."""
    log_s, log_t = xp.log_softmax(student), xp.log_softmax(teacher)
    return _from_log_mixture(xp, log_s, log_t, (log_s + log_t) / 2)


VECTOR_FORMULATION = (
    VectorFormulation("naive", "jsd", naive, "m = (s + t) / 2, then log m", "Liger-Kernel issue 1453"),
    VectorFormulation(
        "log-space", "jsd", log_space, "log m = logaddexp(ls, lt) - log 2", "TRL GKD, ms-swift"
    ),
    VectorFormulation("upcast", "jsd", upcast, "log m = logaddexp(ls, lt) - log 2 in float32", "common"),
    VectorFormulation("mean-of-logs", "jsd", mean_of_logs, "log m = (ls + lt) / 2", "TRL issue 2202"),
)
