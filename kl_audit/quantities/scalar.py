"""The quantities of one log-ratio d: ratio, k1, k2, k3, and the library functions they rest on.

Estimators after J. Schulman, "Approximating KL Divergence" (2020), with d = log p_ref - log p_policy:
k1 = -d, k2 = d^2/2, k3 = e^d - 1 - d, ratio = e^d.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kl_audit.formats import Float64Array
from kl_audit.oracle import doubles
from kl_audit.oracle.truth import Sum
from kl_audit.quantities.base import Quantity, Side


def exactly(hi: Float64Array) -> Sum:
    """Return hi as it is, which has no error."""
    return Sum(hi, np.zeros_like(hi), np.zeros_like(hi))


def _half_square(d: Float64Array) -> Sum:
    """d^2/2 is exact in float64 for inputs of at most 26 bits; a wider one errs by half an ulp."""
    hi = 0.5 * d * d
    wide = d != d.astype(np.float32)
    return Sum(hi, np.zeros_like(hi), np.where(wide, 2 * doubles.V * hi, 0.0))


def _identity(d: Float64Array) -> Float64Array:
    return d


_EXP = Side(lambda ops, d: ops.exp(d), lambda d: doubles.exp(d, _is_wide(d)), (0.0, math.inf))
_EXPM1 = Side(lambda ops, d: ops.exp(d) - 1, lambda d: doubles.expm1(d, _is_wide(d)), (-1.0, math.inf))


def _is_wide(d: Float64Array) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool((d != d.astype(np.float32)).any())


def _constant(value: float) -> Side:
    def reference(ops: Any, d: Any) -> Any:
        return d - d + int(value)

    return Side(reference, lambda d: exactly(np.full_like(d, value)), (value, value))


RATIO = Quantity(
    "ratio",
    "ratio = exp(d), the probability ratio",
    ("d",),
    _EXP,
    _EXP,
    _identity,
    nonnegative=True,
)
K1 = Quantity(
    "k1",
    "k1 = -d, unbiased for KL(policy || reference), of either sign",
    ("d",),
    Side(lambda ops, d: -d, lambda d: exactly(-d), (math.inf, -math.inf)),
    _constant(-1.0),
    _identity,
)
K2 = Quantity(
    "k2",
    "k2 = d^2/2, biased, never negative",
    ("d",),
    Side(lambda ops, d: d * d / 2, _half_square, (math.inf, math.inf)),
    Side(lambda ops, d: d, exactly, (-math.inf, math.inf)),
    _identity,
    nonnegative=True,
    valley=True,
    zero_at_zero=True,
)
K3 = Quantity(
    "k3",
    "k3 = exp(d) - 1 - d, unbiased for KL(policy || reference), never negative",
    ("d",),
    Side(
        lambda ops, d: ops.exp(d) - d - 1,
        lambda d: doubles.k3(d, _is_wide(d)),
        (math.inf, math.inf),
    ),
    _EXPM1,
    _identity,
    nonnegative=True,
    valley=True,
    zero_at_zero=True,
)
EXP = Quantity(
    "exp",
    "exp(d), a library function that the formulations rest on",
    ("d",),
    _EXP,
    _EXP,
    _identity,
    nonnegative=True,
)
EXPM1 = Quantity(
    "expm1",
    "expm1(d) = exp(d) - 1, a library function that the formulations rest on",
    ("d",),
    _EXPM1,
    _EXP,
    _identity,
    zero_at_zero=True,
)

SCALAR = (K3, K1, K2, RATIO, EXP, EXPM1)
