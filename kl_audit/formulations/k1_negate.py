"""-d: exact, a change of sign."""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import UlpLaw


def negate(xp: Any, d: Any) -> Any:
    """Evaluate -d."""
    return -d


FORMULATION = Formulation(
    name="negate",
    quantity="k1",
    fn=negate,
    formula="-d",
    source="J. Schulman, Approximating KL Divergence (2020)",
    law=UlpLaw(0),
    gradient_law=UlpLaw(0),
)
