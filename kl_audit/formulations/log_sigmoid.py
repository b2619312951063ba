"""log sigmoid(x) = -log(1 + e^-x), four ways.

The plain form overflows for x < -log(largest) and is 0 once e^-x < u.  log1p mends the second.
``stable``, min(x, 0) - log1p(exp(-|x|)), never exponentiates a positive number: for x < 0 the second term
is at most log 2 beside |x|, and both are of one sign, so nothing cancels.
"""

from typing import Any

from kl_audit.formulations.base import Formulation


def naive(xp: Any, x: Any) -> Any:
    """Evaluate -log(1 + exp(-x))."""
    return -xp.log(1 + xp.exp(-x))


def with_log1p(xp: Any, x: Any) -> Any:
    """Evaluate -log1p(exp(-x))."""
    return -xp.log1p(xp.exp(-x))


def stable(xp: Any, x: Any) -> Any:
    """Evaluate min(x, 0) - log1p(exp(-|x|))."""
    return xp.clip(x, None, 0.0) - xp.log1p(xp.exp(-xp.abs(x)))


def library(xp: Any, x: Any) -> Any:
    """Evaluate the framework's own."""
    return xp.log_sigmoid(x)


FORMULATION = (
    Formulation("naive", "log-sigmoid", naive, "-log(1 + exp(-x))", "torch issue 1835", None),
    Formulation("log1p", "log-sigmoid", with_log1p, "-log1p(exp(-x))", "common", None),
    Formulation("stable", "log-sigmoid", stable, "min(x, 0) - log1p(exp(-|x|))", "kl-audit", None),
    Formulation("library", "log-sigmoid", library, "logsigmoid(x)", "the framework", None),
)
