"""(d/2) d: halve first.

Halving is exact for normal d, so one rounding, in the product: 1/2 ulp.  It overflows only where d^2/2
does.  A subnormal d rounds when halved, but its square is zero in every format.
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import UlpLaw


def half_first(xp: Any, d: Any) -> Any:
    """Evaluate (d/2) d."""
    return (xp.constant(0.5, d) * d) * d


FORMULATION = Formulation(
    name="half-first",
    quantity="k2",
    fn=half_first,
    formula="(d/2) d",
    source="kl-audit",
    law=UlpLaw(0.5),
    gradient_law=UlpLaw(1),
    monotone=True,
)
