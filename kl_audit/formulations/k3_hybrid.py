"""The course notebook's hybrid: a 3-term series below 1e-2, expm1(d) - d above, in every dtype.

Below, k3 = d^2/2 (1 + d/3 + d^2/12 + d^3/60 + ...): truncation costs |d|^3/60 relative and change, at
most 1.7e-8 at the threshold, rounding about 4 u (the square, the factor, the product).  Above it is the
expm1 form with its 2 u/|d|: 200 u just above the seam, which is 1.2e-5 in float32 (about 100 ulp) and
0.78 in bfloat16: one threshold does not fit all formats.  where() differentiates both branches, so a
series that overflows makes NaN of the gradient (float16, |d| >= 256).
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import HYBRID_LAW, SLOPE_LAW


def hybrid(xp: Any, d: Any) -> Any:
    """Evaluate d^2/2 (1 + d/3 + d^2/12) where |d| < 1e-2, else expm1(d) - d."""
    series = d * d / 2 * (1 + d / 3 + d * d / 12)
    return xp.where(xp.abs(d) < 1e-2, series, xp.expm1(d) - d)


FORMULATION = Formulation(
    name="hybrid",
    quantity="k3",
    fn=hybrid,
    formula="d^2/2 (1 + d/3 + d^2/12) if |d| < 1e-2 else expm1(d) - d",
    source="a course notebook on k1, k2, k3, its section on precision",
    law=HYBRID_LAW,
    gradient_law=SLOPE_LAW,
)
