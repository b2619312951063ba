"""The naive form of a clipped log-ratio, d to [-20, 20].

exp(20) is 4.9e8: fine in float32 and bfloat16, infinite in float16.  Held against k3(clip(d, -20, 20));
the law is the naive form's.
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import NAIVE_LAW, SLOPE_LAW
from kl_audit.quantities.base import Clamp

LIMITS = (-20.0, 20.0)


def clamp_in(xp: Any, d: Any) -> Any:
    """Evaluate exp(c) - c - 1, c = clip(d, -20, 20)."""
    c = xp.clip(d, *LIMITS)
    return xp.exp(c) - c - 1


FORMULATION = Formulation(
    name="clamp-in",
    quantity="k3",
    fn=clamp_in,
    formula="exp(c) - c - 1, c = clip(d, -20, 20)",
    source="huggingface/trl pull request 6637, among others",
    law=NAIVE_LAW,
    gradient_law=SLOPE_LAW,
    clamp=Clamp(input=LIMITS),
)
