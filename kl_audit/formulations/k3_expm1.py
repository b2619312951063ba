"""expm1(d) - d: one cancellation left of two.

expm1(d) is about d, rounded to within u |d| (E ulp: 2 E u |d|); the difference is exact near 0
(Sterbenz), so that error is carried into a result of d^2/2: relative error up to 2 u/|d|
[4 E u/|d|].  All digits are gone at |d| = 2 u: 1.2e-7 in float32, but 2^-7 = 0.0078 in bfloat16.
Pointwise, for every d: u (1 + |expm1(d)| / k3).
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import EXPM1_LAW, SLOPE_LAW


def expm1_form(xp: Any, d: Any) -> Any:
    """Evaluate expm1(d) - d."""
    return xp.expm1(d) - d


FORMULATION = Formulation(
    name="expm1",
    quantity="k3",
    fn=expm1_form,
    formula="expm1(d) - d",
    source="torchrl, open-instruct, compose-rl, unsloth-zoo (pull request 1240)",
    law=EXPM1_LAW,
    gradient_law=SLOPE_LAW,
)
