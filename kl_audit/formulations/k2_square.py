"""d d / 2: the square first.

One rounding in the square, and halving is exact but for subnormal results, where it rounds again: at
most 1 ulp.  The square overflows where d^2/2 does not: |d| from 256 to 362 in float16.
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import UlpLaw


def square(xp: Any, d: Any) -> Any:
    """Evaluate (d d) / 2."""
    return d * d / 2


FORMULATION = Formulation(
    name="square",
    quantity="k2",
    fn=square,
    formula="d d / 2",
    source="verl, OpenRLHF, tunix (mse_kl)",
    law=UlpLaw(1),
    gradient_law=UlpLaw(1),
    monotone=True,
)
