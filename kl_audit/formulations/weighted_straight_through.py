"""The value of k3, detached, with the gradient of the weighted form written out: no cancellation.

exp(p - sg(p)) k3(d) has, on policy, the derivative d with respect to d, but automatic differentiation
forms it as e^d - 1 - k3(d), two terms of size e^d whose difference has lost all digits once e^d u > d.
Here the value comes from a k3 that nothing is differentiated through, and the derivative from
(d - sg(d)) sg(d), which is exactly 0 in value and exactly d in derivative for every finite d: half an
ulp at most.  The pair has the derivative -d exp(policy - old) alike.
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.k3_hybrid_poly import hybrid_poly
from kl_audit.formulations.laws import UlpLaw


def straight_through(xp: Any, d: Any) -> Any:
    """Evaluate sg(k3(d)) + (d - sg(d)) sg(d)."""
    held = xp.stop_gradient(d)
    return hybrid_poly(xp, held) + (d - held) * held


def straight_through_pair(xp: Any, policy: Any, old: Any, reference: Any) -> Any:
    """Evaluate sg(w k3(d)) - (policy - sg(policy)) sg(w d), w = exp(policy - old)."""
    p = xp.stop_gradient(policy)
    d = xp.stop_gradient(reference) - p
    weight = xp.exp(p - xp.stop_gradient(old))
    return weight * hybrid_poly(xp, d) - (policy - p) * (weight * d)


FORMULATION = (
    Formulation(
        name="straight-through",
        quantity="weighted-k3",
        fn=straight_through,
        formula="sg(k3(d)) + (d - sg(d)) sg(d)",
        source="kl-audit",
        law=UlpLaw(3, "exp", slope=2, offset=1),
        gradient_law=UlpLaw(1),
    ),
    Formulation(
        name="straight-through",
        quantity="weighted-k3-pair",
        fn=straight_through_pair,
        formula="sg(w k3(d)) - (policy - sg(policy)) sg(w d), w = exp(policy - old)",
        source="kl-audit",
        law=None,
    ),
)
