"""The logarithms of preference losses and tail masses: log(1 - e**x) and log sigmoid(x)."""

from __future__ import annotations

import math
from typing import Any

from kl_audit.formats import Float64Array
from kl_audit.oracle.exact import Undefined
from kl_audit.quantities.base import Quantity, Side


def _identity(x: Float64Array) -> Float64Array:
    return x


def _below_zero(ops: Any, x: Any) -> None:
    """A probability e**x is at most 1; at 1 nothing is left, and there is no finite value."""
    if ops.sign(x) >= 0:
        raise Undefined


def _log1mexp(ops: Any, x: Any) -> Any:
    _below_zero(ops, x)
    # log1p keeps a tail of e**x alone, however small; log(1 - e**x) would need its exponent in bits.
    return ops.log1p(-ops.exp(x))


def _log1mexp_slope(ops: Any, x: Any) -> Any:
    _below_zero(ops, x)
    return -1 / (ops.exp(-x) - 1)


def _log_sigmoid(ops: Any, x: Any) -> Any:
    if ops.sign(x) < 0:
        return x - ops.log1p(ops.exp(x))
    return -ops.log1p(ops.exp(-x))


def _log_sigmoid_slope(ops: Any, x: Any) -> Any:
    return 1 / (1 + ops.exp(x))


LOG1MEXP = Quantity(
    "log1mexp",
    "log1mexp = log(1 - exp(x)) for x < 0, the log of what a probability leaves",
    ("x",),
    Side(_log1mexp, limits=(0.0, math.nan)),
    Side(_log1mexp_slope, limits=(0.0, math.nan)),
    _identity,
)
LOG_SIGMOID = Quantity(
    "log-sigmoid",
    "log-sigmoid = -log(1 + exp(-x)), the log-probability of a preference",
    ("x",),
    Side(_log_sigmoid, limits=(-math.inf, 0.0)),
    Side(_log_sigmoid_slope, limits=(1.0, 0.0)),
    _identity,
)

LOGISTIC = (LOG1MEXP, LOG_SIGMOID)
