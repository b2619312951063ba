"""The naive form, its result clipped to [-10, 10].

The clip bounds the value and repairs nothing else: small negative results pass it, and the derivative
at a large d is 0 times infinity, NaN.  Held against clip(k3, -10, 10), whose own distance from k3 is
bias; the law is the naive form's.
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import NAIVE_LAW, SLOPE_LAW
from kl_audit.quantities.base import Clamp

LIMITS = (-10.0, 10.0)


def clamp_out(xp: Any, d: Any) -> Any:
    """Evaluate clip(exp(d) - d - 1, -10, 10)."""
    return xp.clip(xp.exp(d) - d - 1, *LIMITS)


FORMULATION = Formulation(
    name="clamp-out",
    quantity="k3",
    fn=clamp_out,
    formula="clip(exp(d) - d - 1, -10, 10)",
    source="google/tunix pull request 1560 (clamp_value=10); AReaL, ROLL, slime",
    law=NAIVE_LAW,
    gradient_law=SLOPE_LAW,
    clamp=Clamp(output=LIMITS),
)
