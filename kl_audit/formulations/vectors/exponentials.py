"""The pieces that sound formulations share: widening, shifted exponentials, and gradients known by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

#: Formats whose arithmetic is done in float32.
NARROW = ("float16", "bfloat16")


def widen(xp: Any, x: Any) -> Any:
    """Return x in float32 if it has 16 bits, else as it is."""
    return xp.cast(x, "float32") if xp.format_of(x) in NARROW else x


def entry(xp: Any, x: Any, index: Any) -> Any:
    """Return x[index] without a dimension, for an index that is an int or an array of one integer."""
    if isinstance(index, int):
        return xp.take(x, index)
    return xp.reshape(xp.take(x, xp.reshape(index, (1,))), ())


def positions(xp: Any, x: Any) -> Any:
    """Return 0, 1, 2, ... in the dtype of x: exact to 2^24 in float32."""
    return xp.cumsum(xp.full(x.shape, 1, x)) - 1


def finite_or_zero(xp: Any, z: Any) -> Any:
    """Return z with 0 for its infinities, whose derivative is then 0 as well."""
    return xp.where(xp.isfinite(z), z, xp.constant(0.0, z))


@dataclass(frozen=True)
class Exponentials:
    """e**(z - max z) of a row of logits, and its sum in two parts: 1 + rest."""

    top: Any  #: max z, or 0 where every logit is -inf
    shifted: Any  #: z - top, at most 0
    exp: Any  #: e**shifted
    rest: Any  #: the sum of exp less the 1 of the greatest, so that log1p(rest) keeps what is small
    probs: Any  #: softmax(z)


def exponentials(xp: Any, z: Any) -> Exponentials:
    """Return the shifted exponentials of a row, whose gradients are not meant to be used."""
    z = xp.stop_gradient(z)
    top = xp.max(z)
    top = xp.where(xp.isfinite(top), top, xp.constant(0.0, z))
    shifted = z - top
    exp = xp.exp(shifted)
    below = xp.where(shifted < 0, exp, xp.constant(0.0, z))
    rest = xp.sum(below) + (xp.sum(xp.like(shifted == 0, z)) - 1)
    probs = xp.where(xp.isfinite(z), exp / (1 + rest), xp.constant(0.0, z))
    return Exponentials(top, shifted, exp, rest, probs)


def attach(xp: Any, value: Any, *gradients: tuple[Any, Any]) -> Any:
    """Return ``value`` with the gradient w with respect to z, for each pair (w, z).

    s = sum w z has that gradient when w is held fixed, and s - stop_gradient(s) is exactly 0.
    """
    total = xp.stop_gradient(value)
    for weights, z in gradients:
        s = xp.sum(xp.stop_gradient(weights) * finite_or_zero(xp, z))
        total = total + (s - xp.stop_gradient(s))
    return total


LOG_2 = math.log(2)
