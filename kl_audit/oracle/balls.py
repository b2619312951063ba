"""Bulk truth by Arb balls (python-flint): about a microsecond a point, and it knows its own error.

A ball that holds fewer than p + 40 bits is computed again with more precision; one that never gets
there raises OracleError, as the exact oracle does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from kl_audit.errors import OracleError
from kl_audit.formats import Float64Array, Format
from kl_audit.oracle.exact import GUARD_BITS, MAX_PRECISION, Reference, Undecided, Undefined
from kl_audit.oracle.truth import Sum, split

#: A ball of this accuracy survives the conversion to hi + lo, which keeps at least 2**-104.
PAIR_BITS = 104

#: Values below 2**-SATURATED are taken as that: 20 times as small as any format can tell from zero.
SATURATED = 20000


class BallOps:
    """The operations a reference may use, on Arb balls."""

    def exp(self, x: Any) -> Any:
        """Return e**x."""
        return x.exp()

    def clip(self, x: Any, low: float, high: float) -> Any:
        """Return min(max(x, low), high)."""
        return x.max(flint.arb(low)).min(flint.arb(high))

    def inside(self, x: Any, low: float, high: float) -> bool:
        """Decide low < x < high; raises Undecided, or Undefined exactly on a boundary."""
        if x > low and x < high:
            return True
        if x < low or x > high:
            return False
        raise Undefined if x.is_exact() else Undecided


_OPS = BallOps()


@contextmanager
def _precision_restored() -> Iterator[None]:
    before = flint.ctx.prec
    try:
        yield
    finally:
        flint.ctx.prec = before


def _start_precision(inputs: tuple[float, ...], bits: int) -> int:
    """Guess the working precision: exp(d) - d - 1 loses twice the leading zeros of a small d."""
    smallest = min((abs(x) for x in inputs if x), default=1.0)
    return bits + 32 + max(0, -2 * math.frexp(smallest)[1])


def ball(reference: Reference, inputs: tuple[float, ...], bits: int) -> Any:
    """Return a ball with at least ``bits`` bits for the reference at finite inputs.

    Raises Undefined or OracleError.  Leaves flint's precision raised: callers restore it.
    """
    precision = _start_precision(inputs, bits)
    while precision <= MAX_PRECISION:
        flint.ctx.prec = precision
        try:
            value = reference(_OPS, *(flint.arb(x) for x in inputs))
        except Undecided:
            precision *= 2
            continue
        if value.is_exact() or value.rel_accuracy_bits() >= bits:
            return value
        precision *= 2
    raise OracleError(f"no ball of {bits} bits at ({', '.join(x.hex() for x in inputs)})")


def _to_fraction(value: Any) -> Fraction:
    mantissa, exponent = value.mid().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def ball_truth(reference: Reference, inputs: tuple[Float64Array, ...], fmt: Format) -> Sum:
    """Return the reference at every point (columns of ``inputs``, finite values of ``fmt``)."""
    n = len(inputs[0])
    bits = max(fmt.precision + GUARD_BITS, PAIR_BITS)
    hi, lo, err = np.empty(n), np.empty(n), np.zeros(n)
    scale = np.zeros(n, dtype=np.int64)
    # A value between these needs no scale: hi and lo and their errors are normal float64 numbers.
    safe_low, safe_high = 2.0**-900, 2.0**1000
    with _precision_restored():
        for i, point in enumerate(zip(*(column.tolist() for column in inputs), strict=True)):
            try:
                value = ball(reference, point, bits)
            except Undefined:
                hi[i], lo[i] = np.nan, 0.0
                continue
            h = float(value)
            if safe_low < abs(h) < safe_high:
                rest = value - h
                hi[i], lo[i] = h, float(rest)
                # The ball's radius, and the rounding of lo to float64; a little more, for theirs.
                if not rest.is_exact() or flint.arb(lo[i]) != rest:
                    err[i] = 1.01 * float(rest.rad()) + abs(lo[i]) * 2.0**-52 + 2.0**-1074
            elif _beyond_exponents(value):
                # Saturate: no format tells 2**(+-20000) from what lies beyond it.
                sign = -1.0 if value < 0 else 1.0
                hi[i], lo[i] = (sign * math.inf, 0.0) if abs(h) > 1 else (sign, 0.0)
                scale[i] = 0 if abs(h) > 1 else -SATURATED
            else:
                hi[i], lo[i], scale[i] = split(_to_fraction(value))
                # radius and rounding are both below 2**-104 of the value
                err[i] = abs(hi[i]) * 2.0**-103
    return Sum(hi, lo, err, scale)


def _beyond_exponents(value: Any) -> bool:
    _, exponent = value.mid().man_exp()
    return bool(abs(int(exponent)) > 15000)
