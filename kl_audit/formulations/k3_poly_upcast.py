"""The polynomial hybrid in float32, rounded once: right to half an ulp of a 16-bit format.

The float32 result is off by at most 3 of its own ulp (``k3_hybrid_poly``), which moves the rounding to p
bits by 3 * 2^(p-24): half an ulp and less than a hundredth.  The derivative too is formed in float32 and
rounded once, on its way back through the cast, and no branch that where() discards is infinite, so none
makes it NaN.  Where subnormals are flushed it is 0 just above the smallest normal number.
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.k3_hybrid_poly import hybrid_poly
from kl_audit.formulations.laws import SLOPE_LAW, UlpLaw


def poly_upcast(xp: Any, d: Any) -> Any:
    """Evaluate the polynomial hybrid of float32(d), back in the dtype of d."""
    return xp.like(hybrid_poly(xp, xp.cast(d, "float32")), d)


FORMULATION = Formulation(
    name="poly-upcast",
    quantity="k3",
    fn=poly_upcast,
    formula="hybrid-poly in float32, rounded once",
    source="kl-audit",
    law=UlpLaw(0.51),
    gradient_law=SLOPE_LAW,
    formats=("bfloat16", "float16"),
)
