"""Constants among themselves: float64 arithmetic, as Python computes them before an array sees them.

Where Python raises, IEEE 754 has an answer, and that is given: 1/0 is inf, log(-1) is NaN, exp(1000) is inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

#: Constants by name.
VALUES = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}


def nearest(value: Fraction) -> float:
    """Return the float64 nearest to an exact number that is not negative, inf beyond the largest."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def divide(a: float, b: float) -> float:
    """Return a / b."""
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def power(base: float, exponent: int) -> float:
    """Return base ** exponent."""
    if base == 0 and exponent < 0:
        return divide(1.0, math.pow(base, -exponent))
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 else math.inf


def _or_inf(fn: Callable[[float], float]) -> Callable[[float], float]:
    def bounded(x: float) -> float:
        try:
            return fn(x)
        except OverflowError:
            return math.inf

    return bounded


def _logarithm(fn: Callable[[float], float], pole: float) -> Callable[[float], float]:
    def everywhere(x: float) -> float:
        if x == pole:
            return -math.inf
        return fn(x) if x > pole else math.nan

    return everywhere


_exp = _or_inf(math.exp)
_log = _logarithm(math.log, 0.0)


def _square_root(x: float) -> float:
    return math.nan if x < 0 else math.sqrt(x)


def _softplus(x: float) -> float:
    return math.nan if math.isnan(x) else max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _sigmoid(x: float) -> float:
    return divide(1.0, 1.0 + _exp(-x))


def _smaller(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else min(a, b)


def _larger(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


def _logaddexp(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    if a == b:  # infinities, too
        return a + math.log(2)
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


def _xlogy(a: float, b: float) -> float:
    return 0.0 if a == 0 and not math.isnan(b) else a * _log(b)


ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": divide,
}

#: The functions that fold, on float64 numbers.
SCALAR: dict[str, Callable[..., float]] = {
    "exp": _exp,
    "expm1": _or_inf(math.expm1),
    "log": _log,
    "log1p": _logarithm(math.log1p, -1.0),
    "sqrt": _square_root,
    "abs": abs,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "log_sigmoid": lambda x: -_softplus(-x),
    "square": lambda x: x * x,
    "stop_gradient": lambda x: x,
    "nan_to_num": lambda x: 0.0 if math.isnan(x) else x,
    "minimum": _smaller,
    "maximum": _larger,
    "logaddexp": _logaddexp,
    "xlogy": _xlogy,
}
