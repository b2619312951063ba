"""exp(d) - d - 1, as most trainers write k3: (exp(d) - d) - 1.

Near 0 both exp(d) and exp(d) - d are about 1, and each is rounded to the grid there: up to u (E ulp of
exp: 2 E u) and u, an absolute error of 2 u in a result of d^2/2, so the relative error is up to
4 u/d^2 [with E: (4 E + 2) u/d^2].  Every digit is gone at |d| = 2 sqrt(u): 4.9e-4 in float32, 0.125 in
bfloat16; below that the result is 0 or a small number of either sign.  Pointwise, for every d:
u (1 + (e^d + |e^d - d|) / k3).
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import NAIVE_LAW, SLOPE_LAW


def naive(xp: Any, d: Any) -> Any:
    """Evaluate (exp(d) - d) - 1."""
    return xp.exp(d) - d - 1


FORMULATION = Formulation(
    name="naive",
    quantity="k3",
    fn=naive,
    formula="exp(d) - d - 1",
    source="TRL, tunix, torchforge, Liger-Kernel (google/tunix issue 2315)",
    law=NAIVE_LAW,
    gradient_law=SLOPE_LAW,
)
