"""Two rows of logits compared on the tokens that both can draw, without a cancellation.

Let p = softmax(a), q = softmax(b), I the tokens with mass on both sides, p' and q' the distributions
given I, delta = b - a on I and c = delta - sum p' delta.  Then log q'/p' = delta - L for one constant L,
and

    KL(p' || q') = log sum p' e**c = log1p(sum p' (e**c - 1 - c)) = log1p(sum p' k3(c)),

since sum p' c = 0: an identity.  Every k3 is at least 0, so the result is; nothing cancels, so it is
right to a few u relatively however close the rows are.  An error e in the mean changes the sum by e KL +
e^2/2; subtracting delta at the most probable token and then the mean, twice, makes e about u max |c|, and
with it harmless.  Then

    log q'/p' = c - KL(p' || q'),   d KL(p' || q') / d a_k = -p'_k c_k,   d KL / d b_k = q'_k - p'_k.

e**c overflows where q' has what p' lacks.  With L the tokens of c > 1, e**KL q' = p' e**c turns the
identity into

    KL = log1p(sum_{not L} p' k3(c) - sum_L p' (1 + c)) - log(1 - Q),   Q = q'(L),

in which c never reaches an exponential.  Its sum cancels where KL is large: above 1/2, KL is taken as
log Z_b - log Z_a - sum p' delta, each row shifted by its own maximum; nothing of the size of the logits
is left there, and the terms are of the size of KL or of log V.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kl_audit.formulations.k3_hybrid_poly import hybrid_poly
from kl_audit.formulations.vectors.exponentials import Exponentials, exponentials


@dataclass(frozen=True)
class Divergence:
    """KL(p' || q') on the common tokens, and what is needed to go on from there (no gradients)."""

    kl: Any  #: KL(p' || q')
    centred: Any  #: c, 0 outside the common tokens
    log_ratio: Any  #: log q / p on the common tokens, 0 elsewhere
    common: Any  #: boolean: I
    p: Any  #: softmax(a)
    q: Any  #: softmax(b)
    p_alone: Any  #: mass of p outside I
    q_alone: Any  #: mass of q outside I
    far: Any  #: boolean: KL(p' || q') is above 1/2


def _mass(xp: Any, probs: Any, where: Any) -> Any:
    return xp.sum(xp.where(where, probs, xp.constant(0.0, probs)))


def divergence(xp: Any, a: Any, b: Any) -> Divergence:
    """Compare softmax(a) and softmax(b)."""
    a, b = xp.stop_gradient(a), xp.stop_gradient(b)
    zero = xp.constant(0.0, a)
    on_a, on_b = xp.isfinite(a), xp.isfinite(b)
    common = on_a & on_b
    ea, eb = exponentials(xp, a), exponentials(xp, b)
    p_alone, q_alone = _mass(xp, ea.probs, on_a & ~on_b), _mass(xp, eb.probs, on_b & ~on_a)
    given = exponentials(xp, xp.where(common, a, xp.constant(-math.inf, a)))
    p = given.probs
    delta = xp.where(common, xp.where(common, b, zero) - xp.where(common, a, zero), zero)
    c = xp.where(common, centred(xp, delta, p), zero)
    given_b = exponentials(xp, xp.where(common, b, xp.constant(-math.inf, b)))
    mass = xp.log1p(-q_alone) - xp.log1p(-p_alone)
    kl, far = _kl(xp, c, given, given_b, common)
    own = xp.where(common, given_b.shifted, zero) - xp.where(common, given.shifted, zero)
    own = own - (xp.log1p(given_b.rest) - xp.log1p(given.rest))
    log_ratio = xp.where(common, xp.where(far, own, c - kl) + mass, zero)
    return Divergence(kl, c, log_ratio, common, ea.probs, eb.probs, p_alone, q_alone, far)


def centred(xp: Any, x: Any, probs: Any) -> Any:
    """Return x - sum probs x, by way of x at the most probable token, so that little is subtracted."""
    most = probs == xp.max(probs)
    zero = xp.constant(0.0, x)
    x = x - xp.sum(xp.where(most, x, zero)) / xp.sum(xp.like(most, x))
    x = x - xp.sum(probs * x)
    return x - xp.sum(probs * x)


def _kl(xp: Any, c: Any, a: Exponentials, b: Exponentials, common: Any) -> tuple[Any, Any]:
    """Return KL(p' || q'), from c and the exponentials of the rows on the common tokens, and if it is far."""
    zero, large, p, q = xp.constant(0.0, c), c > 1, a.probs, b.probs
    terms = xp.where(large, -p * (1 + c), p * hybrid_poly(xp, xp.where(large, zero, c)))
    near = xp.log1p(xp.sum(terms)) - xp.log1p(-_mass(xp, q, large))
    delta = xp.where(common, b.shifted, zero) - xp.where(common, a.shifted, zero)
    far = (xp.log1p(b.rest) - xp.log1p(a.rest)) - xp.sum(p * delta)
    return xp.where(far > 0.5, far, near), far > 0.5


def difference(xp: Any, d: Divergence) -> Any:
    """Return q - p, to a few u of itself where they are close: p (e**r - 1), r = log q / p."""
    close = d.common & (xp.abs(d.log_ratio) < 1)
    r = xp.where(close, d.log_ratio, xp.constant(0.0, d.p))
    return xp.where(close, d.p * (r + hybrid_poly(xp, r)), d.q - d.p)
