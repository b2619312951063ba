"""(exp(d) - 1) - d: the same formula, another function in floating point.

Near 0 the difference exp(d) - 1 is exact (Sterbenz), and so is the next one where the terms are close;
what is left is the rounding of exp(d) near 1, up to u (E ulp: 2 E u), so the relative error is up to
2 u/d^2 [4 E u/d^2].  Where |d| < u, exp(d) is 1 and the result is -d: of first order, and negative for
d > 0.  Pointwise: u (1 + (e^d + |e^d - 1|) / k3).
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import GROUPED_LAW, SLOPE_LAW


def naive_grouped(xp: Any, d: Any) -> Any:
    """Evaluate (exp(d) - 1) - d."""
    return (xp.exp(d) - 1) - d


FORMULATION = Formulation(
    name="naive-grouped",
    quantity="k3",
    fn=naive_grouped,
    formula="(exp(d) - 1) - d",
    source="NeMo-RL, OpenRLHF, AReaL, slime, miles",
    law=GROUPED_LAW,
    gradient_law=SLOPE_LAW,
)
