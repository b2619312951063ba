"""The same loss from one pass over the vocabulary in chunks, for rows that are not held at once.

Every chunk raises the running maximum m and rescales what was added so far by e**(old m - m).  The wrong
variant forms the logsumexp m + log Z and subtracts it from the selected logits, which rounds log Z at
the size of m; the tail is 1 - sum s.  The right one keeps m and Z - 1 apart and adds the mass outside
the ids as it goes; the loss then follows as in ``topk_tail_sum``.

m starts below all logits instead of at -inf, so that a chunk of -inf gives e**-inf = 0 and not NaN.  Of
Z - 1, a chunk that raises m adds its own entries less the 1 of the greatest, and 1 + (what was there) is
rescaled; it starts at -1, an empty sum.
"""

from __future__ import annotations

from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.exponentials import positions, widen
from kl_audit.formulations.vectors.topk_tail import NAME, by_complement
from kl_audit.formulations.vectors.topk_tail_sum import Row, is_member, loss
from kl_audit.quantities.base import Candidate

#: Below every logit that is not -inf, and a float32 number.
LOWEST = -1e30


def _number(xp: Any, value: float, ref: Any) -> Any:
    return xp.sum(xp.full((1,), value, ref))


def _logsumexp(xp: Any, z: Any, chunk: int) -> Any:
    """Return m + log sum e**(z - m), online; maxima are held fixed in the gradient."""
    m, total = _number(xp, LOWEST, z), _number(xp, 0, z)
    for start in range(0, int(z.shape[0]), chunk):
        block = z[start : start + chunk]
        raised = xp.maximum(m, xp.max(xp.stop_gradient(block)))
        total = total * xp.exp(m - raised) + xp.sum(xp.exp(block - raised))
        m = raised
    return m + xp.log(total)


def _row(xp: Any, z: Any, ids: Any, chunk: int) -> Row:
    """Return the maximum, the sum of the others and its part outside the ids, online."""
    z = xp.stop_gradient(z)
    m, rest, outside = _number(xp, LOWEST, z), _number(xp, -1, z), _number(xp, 0, z)
    tokens, zero = positions(xp, z), xp.constant(0.0, z)
    for start in range(0, int(z.shape[0]), chunk):
        block = z[start : start + chunk]
        raised = xp.maximum(m, xp.max(block))
        scale = xp.exp(m - raised)
        e = xp.exp(block - raised)
        below = xp.sum(xp.where(block < raised, e, zero))
        equal = xp.sum(xp.like(block == raised, z))
        rest = xp.where(raised > m, (1 + rest) * scale + (below + (equal - 1)), rest + (below + equal))
        member = is_member(xp, tokens[start : start + chunk], ids)
        outside = outside * scale + xp.sum(xp.where(member, zero, e))
        m = raised
    return Row(m, rest, outside)


def lse_in_chunks(chunk: int) -> Candidate:
    """Return the variant that subtracts the logsumexp of the pass."""

    def fn(xp: Any, student: Any, teacher_probs: Any, ids: Any) -> Any:
        z = widen(xp, student)
        log_s = xp.take(z, ids) - _logsumexp(xp, z, chunk)
        return by_complement(xp, log_s, widen(xp, teacher_probs))

    return fn


def sum_in_chunks(chunk: int) -> Candidate:
    """Return the variant that stays shifted and adds up the tail."""

    def fn(xp: Any, student: Any, teacher_probs: Any, ids: Any) -> Any:
        z = widen(xp, student)
        return loss(xp, z, widen(xp, teacher_probs), ids, _row(xp, z, ids, chunk))

    return fn


VECTOR_FORMULATION = tuple(
    formulation
    for c in (3, 64)
    for formulation in (
        VectorFormulation(
            f"chunked-{c}", NAME, lse_in_chunks(c), "lp = z[ids] - (m + log Z), online; S = 1 - sum e^lp",
            "verl pull request 7855 (chunked path)",
        ),
        VectorFormulation(
            f"tail-sum-chunked-{c}", NAME, sum_in_chunks(c), "m, Z - 1 and the mass outside the ids, online",
            "kl-audit", True,
        ),
    )
)  # fmt: skip
