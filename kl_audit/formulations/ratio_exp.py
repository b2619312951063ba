"""exp(d): the library's error is all there is; a good one is within 1 ulp."""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import UlpLaw


def ratio(xp: Any, d: Any) -> Any:
    """Evaluate exp(d)."""
    return xp.exp(d)


FORMULATION = Formulation(
    name="exp",
    quantity="ratio",
    fn=ratio,
    formula="exp(d)",
    source="every policy-gradient loss",
    law=UlpLaw(1, "exp", slope=1),
    gradient_law=UlpLaw(1, "exp", slope=1),
)
