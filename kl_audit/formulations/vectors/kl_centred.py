"""The KL divergence of logits as log1p of a mean of k3, right for nearly equal rows and never negative.

The derivation is in ``divergence``.  A token outside the support of p contributes only through q's mass
on the rest: KL(p || q) = KL(p' || q') - log(1 - mass of q outside).  One outside the support of q makes
it infinite.  The gradients, -p c for p's logits and q - p for q's, are attached.  16-bit inputs are
widened to float32, and so is the result.
"""

from __future__ import annotations

import math
from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.divergence import difference, divergence
from kl_audit.formulations.vectors.exponentials import attach, widen
from kl_audit.formulations.vectors.kl import teacher_first


def centred(xp: Any, p_logits: Any, q_logits: Any) -> Any:
    """Evaluate KL(p || q) = log1p(sum p k3(c)), c = (z_q - z_p) - sum p (z_q - z_p)."""
    a, b = widen(xp, p_logits), widen(xp, q_logits)
    d = divergence(xp, a, b)
    kl = d.kl - xp.log1p(-d.q_alone)
    kl = xp.where(d.p_alone > 0, xp.constant(math.inf, d.p), kl)
    return attach(xp, kl, (-d.p * d.centred, a), (difference(xp, d), b))


_FORMULA = "log1p(sum p k3(c)), c = delta - sum p delta, delta = z_q - z_p"

VECTOR_FORMULATION = (
    VectorFormulation("centred", "kl-forward", teacher_first(centred), _FORMULA, "kl-audit", True),
    VectorFormulation("centred", "kl-reverse", centred, _FORMULA, "kl-audit", True),
)
