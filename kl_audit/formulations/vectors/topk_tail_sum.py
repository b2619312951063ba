"""Forward KL over the teacher's top-k with the tails added up instead of subtracted from 1.

S is the sum of the probabilities of the other tokens, max-shifted: all terms are positive, so S is right
to a few u of itself at any size.  T = 1 - sum t is formed with the rounding errors of the sum carried
along (TwoSum of Knuth, 1969, in a tree): right to u of itself, and exactly 0 where the stored
probabilities sum to 1.

With d = log s - log t, D = log S' - log T and S' the clamped S, the weights t and T sum to 1 and so do
the student's s and S; hence -(sum t d + T D) is

    sum_{t > 0} t k3(d) + sum_{t = 0} s + T k3(D) + S - S'     (if T = 0, S for the last three terms),

non-negative terms but for the clamp, and none of first order where student and teacher agree.  t k3(d)
is s - t (1 + d) for d > 1, which does not overflow.

The gradient is attached.  With a = 1 where S is above its floor, else a = sum t,

    ids:     s_k (a - t_k) - t_k (1 - s_k)           (this is a s_k - t_k)
    others:  s_k (1 - T / S) above the floor, else s_k a,

and 1 - s_k is formed from the other exponentials, so that what is left of it in a concentrated row
survives; automatic differentiation of log_softmax forms it as a difference.  The membership test
compares every id with every token: k V comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kl_audit.formulations.k3_hybrid_poly import hybrid_poly
from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.exponentials import attach, exponentials, positions, widen
from kl_audit.formulations.vectors.topk_tail import NAME
from kl_audit.quantities.vectors.kl_topk_tail import FLOOR


@dataclass(frozen=True)
class Row:
    """What one pass over the student's logits has to find (no gradients)."""

    top: Any  #: m, the greatest logit
    rest: Any  #: sum e**(z - m), less the 1 of the greatest
    outside: Any  #: the part of the sum that is outside the ids


def complement(xp: Any, probs: Any) -> Any:
    """Return 1 - sum(probs) rounded about once, by a tree of error-free additions."""
    high = xp.concat([-probs, xp.full((1,), 1, probs)])
    low = xp.sum(xp.full((1,), 0, probs))
    while high.shape[0] > 1:
        if high.shape[0] % 2:
            high = xp.concat([high, xp.full((1,), 0, probs)])
        half = high.shape[0] // 2
        a, b = high[:half], high[half:]
        high = a + b
        part = high - a
        low = low + xp.sum((a - (high - part)) + (b - part))
    return high[0] + low


def is_member(xp: Any, tokens: Any, ids: Any) -> Any:
    """Return which of the token numbers (floats) are among the ids."""
    n, k = tokens.shape[0], ids.shape[0]
    same = xp.reshape(tokens, (n, 1)) == xp.reshape(xp.like(ids, tokens), (1, k))
    return xp.sum(xp.like(same, tokens), -1) > 0


def _share(xp: Any, t: Any, s: Any, log_s: Any) -> Any:
    """Return t k3(log s - log t), s where t = 0."""
    used = t > 0
    one, zero = xp.constant(1.0, t), xp.constant(0.0, t)
    d = xp.where(used, log_s, zero) - xp.log(xp.where(used, t, one))
    near = xp.where(d > 1, zero, d)
    k3 = xp.where(d > 1, s - t * (1 + d), t * hybrid_poly(xp, near))
    return xp.where(used, k3, s)


def loss(xp: Any, z: Any, t: Any, ids: Any, row: Row) -> Any:
    """Return the loss, and its gradient with respect to z, from what a pass has found."""
    fixed, t = xp.stop_gradient(z), xp.stop_gradient(t)
    zero, one, total = xp.constant(0.0, z), xp.constant(1.0, z), 1 + row.rest
    shifted = xp.take(fixed, ids) - row.top
    e = xp.exp(shifted)
    s, log_s = e / total, shifted - xp.log1p(row.rest)
    inside = xp.sum(s)
    most = inside < 0.5
    mass = xp.where(most, 1 - inside, row.outside / total)
    above = mass > FLOOR
    held = xp.clip(mass, FLOOR, None)
    log_held = xp.where(most, xp.log1p(-xp.where(most, inside, zero)), xp.log(held))
    tail, weight = complement(xp, t), xp.sum(t)
    bucket = _share(xp, tail, held, log_held) + xp.where(above, zero, mass - held)
    value = xp.sum(_share(xp, t, s, log_s)) + xp.where(tail > 0, bucket, mass)

    others = xp.where(shifted == 0, row.rest, (1 - e) + row.rest) / total
    on_ids = s * (xp.where(above, one, weight) - t) - t * others
    probs = xp.where(xp.isfinite(fixed), xp.exp(fixed - row.top) / total, zero)
    outside = ~is_member(xp, positions(xp, fixed), ids)
    slope = xp.where(above, 1 - tail / held, weight)
    return attach(xp, value, (on_ids, xp.take(z, ids)), (xp.where(outside, probs * slope, zero), z))


def tail_sum(xp: Any, student: Any, teacher_probs: Any, ids: Any) -> Any:
    """Evaluate the loss with S summed over the tokens outside the ids."""
    z = widen(xp, student)
    e = exponentials(xp, z)
    outside = ~is_member(xp, positions(xp, xp.stop_gradient(z)), ids)
    row = Row(e.top, e.rest, xp.sum(xp.where(outside, e.exp, xp.constant(0.0, z))))
    return loss(xp, z, widen(xp, teacher_probs), ids, row)


VECTOR_FORMULATION = VectorFormulation(
    name="tail-sum",
    quantity=NAME,
    fn=tail_sum,
    formula="S = sum over the other tokens of e^(z - m) / sum e^(z - m)",
    source="kl-audit",
    sound=True,
)
