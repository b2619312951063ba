"""Quantities made from those of d: of the pair (policy, reference), and weighted by a ratio.

A lifted quantity is computed by the formulations of its base: ``lift`` wraps the candidate, and
here the exact references are wrapped alike.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from kl_audit.formats import Float64Array
from kl_audit.oracle.truth import Sum
from kl_audit.quantities.base import Candidate, Quantity, Side
from kl_audit.quantities.scalar import K3, exactly


def _difference(policy: Float64Array, reference: Float64Array) -> Float64Array:
    return reference - policy


def of_pair(q: Quantity) -> Quantity:
    """Return q of the pair: d = reference - policy exactly, while candidates subtract in the dtype.

    The gradient is with respect to the policy's log-probability.  Near 0 the candidate's
    subtraction is exact (Sterbenz); else it perturbs d by u |d|, and k3 by (2 + |d|) u relative.
    """

    def fast(side: Side, sign: float) -> Side:
        # A float64 difference of two narrow inputs is wrong by at most 2**-53 |d|; within the
        # formula that is at most (2 + |d|) 2**-53 of a value of k1, k2, k3, ratio or a derivative.
        def pair(policy: Float64Array, reference: Float64Array) -> Sum:
            assert side.fast is not None
            d = reference - policy
            total = side.fast(d)
            back = d - reference  # what was subtracted, as rounded (Knuth's two-sum)
            rest = (reference - (d - back)) - (policy + back)
            grown = total.err + np.where(
                rest != 0, (2 + np.abs(d)) * 2.0**-52 * (np.abs(total.hi) + np.abs(d)), 0.0
            )
            return Sum(sign * total.hi, sign * total.lo, grown)

        reference_side = side.reference
        return Side(
            lambda ops, p, r: reference_side(ops, r - p) * int(sign),
            pair if side.fast is not None else None,
        )

    def lift(fn: Candidate) -> Candidate:
        def paired(xp: Any, policy: Any, reference: Any) -> Any:
            return fn(xp, reference - policy)

        return paired

    return replace(
        q, name=f"{q.name}-pair", summary=f"{q.summary}; d = reference - policy in the dtype",
        inputs=("policy", "reference"), value=fast(q.value, 1.0), gradient=fast(q.gradient, -1.0),
        others=(fast(q.gradient, 1.0),),
        log_ratio=_difference, valley=False, lift=lift, base=q.name, relift=of_pair,
        lift_error=lambda d: 2 + np.abs(d),
    )  # fmt: skip


def weighted(q: Quantity) -> Quantity:
    """Return exp(p - stop_gradient(p)) q on policy: the value of q, and the gradient d of k3.

    With p = -d (reference fixed at 0): d/dd [exp(sg(d) - d) k3(d)] = -k3 + expm1(d) = d, the
    score-function form of the reverse KL's gradient.  Source: DeepSeek-V3.2's unbiased KL estimate;
    default in TRL since 1.10.
    """

    def lift(fn: Candidate) -> Candidate:
        def weighed(xp: Any, d: Any) -> Any:
            return xp.exp(xp.stop_gradient(d) - d) * fn(xp, d)

        return weighed

    def value(ops: Any, d: Any) -> Any:
        return q.value.reference(ops, d)

    of_k3 = q.value.reference is K3.value.reference

    def slope(ops: Any, d: Any) -> Any:
        if of_k3:
            return d  # the difference below, without its cancellation
        return q.gradient.reference(ops, d) - q.value.reference(ops, d)

    return replace(
        q, name=f"weighted-{q.name}",
        summary="exp(p - stop_gradient(p)) k3(d) on policy: the value of k3, the gradient d",
        value=Side(value, q.value.fast, q.value.limits),
        gradient=Side(slope, exactly if of_k3 else None, (-math.inf, math.inf)), lift=lift, base=q.name,
        relift=weighted,
    )  # fmt: skip


def weighted_pair(q: Quantity) -> Quantity:
    """Return exp(policy - old) q(reference - policy), old being detached (the sampling policy).

    Gradient with respect to policy: exp(policy - old) (k3(d) - expm1(d)) = -d exp(policy - old).
    """

    def lift(fn: Candidate) -> Candidate:
        def weighed(xp: Any, policy: Any, old: Any, reference: Any) -> Any:
            return xp.exp(policy - xp.stop_gradient(old)) * fn(xp, reference - policy)

        return weighed

    def value(ops: Any, p: Any, o: Any, r: Any) -> Any:
        return ops.exp(p - o) * q.value.reference(ops, r - p)

    def slope(ops: Any, p: Any, o: Any, r: Any) -> Any:
        rest = p - r
        if q.value.reference is not K3.value.reference:
            rest = q.value.reference(ops, r - p) - q.gradient.reference(ops, r - p)
        return ops.exp(p - o) * rest

    def detached(ops: Any, p: Any, o: Any, r: Any) -> Any:
        return o - o

    def reference_slope(ops: Any, p: Any, o: Any, r: Any) -> Any:
        return ops.exp(p - o) * q.gradient.reference(ops, r - p)

    return replace(
        q, name=f"weighted-{q.name}-pair",
        summary="exp(policy - old) k3(reference - policy), the bias-corrected KL term",
        inputs=("policy", "old", "reference"), value=Side(value), gradient=Side(slope),
        others=(Side(detached), Side(reference_slope)),
        log_ratio=lambda p, o, r: r - p, valley=False, zero_at_zero=True, lift=lift, base=q.name,
        relift=weighted_pair,
        # the weight: its argument off by u |p - o| <= 2 u here, exp by E, and the product by u
        lift_error=lambda d: 8 + np.abs(d),
    )  # fmt: skip
