"""The hybrid in float32 on 16-bit input, rounded once at the end.

In float32 the hybrid errs by at most 2 u32/1e-2 = 1.2e-5 relative where expm1 is correctly rounded, and
4.8e-5 E in general.  That is 1.2e-5 / (2 u) = 0.0016 of an ulp of bfloat16 and 0.024 of one of float16 at
most twofold; the final rounding adds one half: 0.55 ulp.  With a float32 expm1 that errs by E ulp it is
at most 0.5 + 0.1 E.
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.k3_hybrid import hybrid
from kl_audit.formulations.laws import SLOPE_LAW, UlpLaw


def hybrid_upcast(xp: Any, d: Any) -> Any:
    """Evaluate the hybrid in float32 and round once."""
    return xp.like(hybrid(xp, xp.cast(d, "float32")), d)


FORMULATION = Formulation(
    name="hybrid-upcast",
    quantity="k3",
    fn=hybrid_upcast,
    formula="the hybrid in float32, rounded once",
    source="the usual remedy for 16-bit log-probabilities",
    law=UlpLaw(0.55, "expm1", slope=0.1, offset=0.5, inside="float32"),
    gradient_law=SLOPE_LAW,
    formats=("float16", "bfloat16"),
)
