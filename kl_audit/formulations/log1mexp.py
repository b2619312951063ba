"""log(1 - e^x) for x < 0, four ways.

log(1 - exp(x)) is wrong near 0 (1 - e^x cancels: relative error u/|x| of its argument) and below log u
(e^x is lost beside 1).  log1p(-exp(x)) mends the second, log(-expm1(x)) the first, and ``switched`` takes
each where it is good: below -log 2 the first, above it the second (M. Maechler, "Accurately computing
log(1 - exp(-|a|))", 2012).  Each branch sees its argument clipped to its own side, so that the discarded one
stays finite in value and derivative.
"""

import math
from typing import Any

from kl_audit.formulations.base import Formulation

SWITCH = -math.log(2)


def naive(xp: Any, x: Any) -> Any:
    """Evaluate log(1 - exp(x))."""
    return xp.log(1 - xp.exp(x))


def with_log1p(xp: Any, x: Any) -> Any:
    """Evaluate log1p(-exp(x))."""
    return xp.log1p(-xp.exp(x))


def with_expm1(xp: Any, x: Any) -> Any:
    """Evaluate log(-expm1(x))."""
    return xp.log(-xp.expm1(x))


def switched(xp: Any, x: Any) -> Any:
    """Evaluate log(-expm1(x)) above -log 2, log1p(-exp(x)) below."""
    near = xp.log(-xp.expm1(xp.clip(x, SWITCH, None)))
    far = xp.log1p(-xp.exp(xp.clip(x, None, SWITCH)))
    return xp.where(x > xp.constant(SWITCH, x), near, far)


FORMULATION = (
    Formulation("naive", "log1mexp", naive, "log(1 - exp(x))", "common", None),
    Formulation("log1p", "log1mexp", with_log1p, "log1p(-exp(x))", "axolotl pull request 3910", None),
    Formulation("expm1", "log1mexp", with_expm1, "log(-expm1(x))", "unsloth-zoo pull request 830", None),
    Formulation(
        "switched", "log1mexp", switched, "log(-expm1(x)) for x > -log 2, else log1p(-exp(x))",
        "Maechler 2012", None,
    ),
)  # fmt: skip
