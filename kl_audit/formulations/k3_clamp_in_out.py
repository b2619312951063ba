"""Both clamps: d to [-20, 20] before, the result to [-10, 10] after.

The value never overflows; the gradient is exactly 0 from d = 2.6109 up and from -11 down, where the
result is at its clamp.  In float16 exp(20) is infinite and the gradient between 11.09 and 20 is NaN.
Held against its own objective; the law is the naive form's.
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import NAIVE_LAW, SLOPE_LAW
from kl_audit.quantities.base import Clamp

INPUT, OUTPUT = (-20.0, 20.0), (-10.0, 10.0)


def clamp_in_out(xp: Any, d: Any) -> Any:
    """Evaluate clip(exp(c) - c - 1, -10, 10), c = clip(d, -20, 20)."""
    c = xp.clip(d, *INPUT)
    return xp.clip(xp.exp(c) - c - 1, *OUTPUT)


FORMULATION = Formulation(
    name="clamp-in-out",
    quantity="k3",
    fn=clamp_in_out,
    formula="clip(exp(c) - c - 1, -10, 10), c = clip(d, -20, 20)",
    source="verl (pull request 1779), SkyRL, ms-swift",
    law=NAIVE_LAW,
    gradient_law=SLOPE_LAW,
    clamp=Clamp(INPUT, OUTPUT),
)
