"""The tokens that a row of logits can draw at all, and the certain zeros of a pair.

References leave -inf logits out by selection: such a token has probability 0, contributes 0 and has
gradient 0, and no expression then meets 0 times infinity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.intp]

#: Default vocabulary sizes.
SIZES = (2, 8, 64, 1000)
#: Default token counts.
COUNTS = (1, 8, 64, 1000)

#: What a student's and a teacher's rows are, in every quantity of the pair.
STUDENT = "logits of the policy that is trained"
TEACHER = "logits of the reference"


def support(ops: Any, logits: Any) -> Ids:
    """Return where the logits are not -inf."""
    return np.flatnonzero(np.asarray(ops.isfinite(logits)))


def proportional(ops: Any, a: Any, b: Any, ids: Ids) -> bool:
    """Return whether two rows differ by one constant on ``ids``: softmax makes them the same."""
    delta = ops.take(a, ids) - ops.take(b, ids)
    return bool(np.all(np.asarray(delta == ops.take(delta, 0))))


def zero(ops: Any, x: Any) -> Any:
    """Return an exact 0 of no dependence on the array x."""
    return ops.constant(0, x)


def kl(ops: Any, p_logits: Any, q_logits: Any) -> Any:
    """Return KL(softmax(p_logits) || softmax(q_logits)): inf unless q covers the support of p."""
    on_p, on_q = support(ops, p_logits), support(ops, q_logits)
    if not set(on_p) <= set(on_q):
        return ops.constant(np.inf, p_logits)
    if len(on_p) == len(on_q) and proportional(ops, p_logits, q_logits, on_p):
        return zero(ops, p_logits)
    log_p = ops.log_softmax(ops.take(p_logits, on_p))
    log_q = ops.take(q_logits, on_p) - ops.logsumexp(ops.take(q_logits, on_q))
    return ops.sum(ops.exp(log_p) * (log_p - log_q))
