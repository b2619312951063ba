"""A hybrid without cancellation: a polynomial on [-1, 2], exp(d) - (d + 1) outside, at most 3 ulp.

Inside, k3 = h + h w with h = (d/2) d and w = d P(d), P = sum_{n>=1} 2 d^(n-1)/(n+2)!, cut where the first
omitted term at d = 2 is below 2^-(p+3).  h is rounded once; h w is rounded a few times but |w| < 1.2 (and
0.27 for d < 0), and the sum once: about 2 ulp.  d/2 before the product, because d^2 overflows and
underflows sooner than d^2/2.

Outside, nothing cancels badly: for d < -1, e^d < k3; for d > 2, e^d < 1.7 k3, so one ulp of e^d is at most
two of k3.  E ulp of exp, half an ulp of d + 1 and of the result: at most 2 E + 1 ulp.  exp, not expm1:
compilers keep it.

The polynomial sees its argument clipped a little outside its interval, and so stays finite, value and
derivative, where the other branch is taken: no NaN from the branch that where() discards.
"""

import math
from typing import Any

from kl_audit.formats import FORMATS
from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import SLOPE_LAW, UlpLaw

LOW, HIGH = -1.0, 2.0


def _coefficients(precision: int) -> tuple[float, ...]:
    n = 1
    while 2 * HIGH**n / math.factorial(n + 2) >= 2.0 ** -(precision + 3):
        n += 1
    return tuple(2 / math.factorial(i + 2) for i in range(1, n))


COEFFICIENTS = {f.name: _coefficients(f.precision) for f in FORMATS.values()}


def hybrid_poly(xp: Any, d: Any) -> Any:
    """Evaluate h + h w on [-1, 2], exp(d) - (d + 1) outside."""
    inside = (d >= LOW) & (d <= HIGH)
    t = xp.clip(d, LOW - 0.25, HIGH + 0.25)
    last, *rest = (xp.constant(c, d) for c in reversed(COEFFICIENTS[xp.format_of(d)]))
    p = t * last + rest[0]
    for c in rest[1:]:
        p = p * t + c
    h = (xp.constant(0.5, d) * t) * t
    return xp.where(inside, h + h * (t * p), xp.exp(d) - (d + 1))


FORMULATION = Formulation(
    name="hybrid-poly",
    quantity="k3",
    fn=hybrid_poly,
    formula="h + h w(d) on [-1, 2], h = (d/2) d, else exp(d) - (d + 1)",
    source="kl-audit",
    law=UlpLaw(3, "exp", slope=2, offset=1),
    gradient_law=SLOPE_LAW,
)
