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
import numpy.typing as npt

from kl_audit.errors import OracleError
from kl_audit.formats import Float64Array, Format
from kl_audit.oracle.exact import (
    EXPONENT_LIMIT,
    GUARD_BITS,
    MAX_PRECISION,
    UNKNOWN,
    Reference,
    Undecided,
    Undefined,
    over_zero,
)
from kl_audit.oracle.truth import BoolArray, Sum

Objects = npt.NDArray[np.object_]

#: A ball of this accuracy survives the conversion to hi + lo, which keeps at least 2**-104.
PAIR_BITS = 104

#: Values below 2**-SATURATED are taken as that: 20 times as small as any format can tell from zero.
SATURATED = 20000


def _finite(value: Any) -> Any:
    """Return the value; an infinite radius says that the precision is too low."""
    if value.is_finite():
        return value
    raise Undecided


class BallOps:
    """The operations a reference may use, on Arb balls."""

    def number(self, x: int | float | Fraction) -> Any:
        """Return the ball that holds x: a point for a float or an integer."""
        if isinstance(x, Fraction):
            return flint.arb(flint.fmpq(x.numerator, x.denominator))
        return flint.arb(x)

    def exp(self, x: Any) -> Any:
        """Return e**x."""
        return _finite(x.exp())

    def expm1(self, x: Any) -> Any:
        """Return e**x - 1."""
        return _finite(x.expm1())

    def log(self, x: Any) -> Any:
        """Return log(x): -inf at 0 and nan below; Undecided where x contains 0 and more."""
        value = x.log()
        if value.is_finite():
            return value
        return self._log_of(self.sign(x))

    def _log_of(self, sign: int) -> float:
        if sign > 0:
            raise Undecided
        return -math.inf if sign == 0 else math.nan

    def log1p(self, x: Any) -> Any:
        """Return log(1 + x), as ``log`` does."""
        value = x.log1p()
        if value.is_finite():
            return value
        return self._log_of(self.sign(1 + x))

    def sqrt(self, x: Any) -> Any:
        """Return the root; nan below 0, Undecided where x contains 0 and more."""
        return math.nan if self._surely(x) == -1 else x.sqrt()

    def divide(self, a: Any, b: Any) -> Any:
        """Return a / b; +-inf or nan where b is 0, Undecided where it contains 0 and more."""
        value = a / b
        if value.is_finite():
            return value
        return _finite(value) if self._surely(b) else over_zero(self.sign(a))

    def sign(self, x: Any) -> int:
        """Return the sign, 0 for exactly 0 and UNKNOWN for a ball that contains 0 and more."""
        if x > 0:
            return 1
        if x < 0:
            return -1
        return 0 if x.is_zero() else UNKNOWN

    def _surely(self, x: Any) -> int:
        sign = self.sign(x)
        if sign == UNKNOWN:
            raise Undecided
        return sign

    def maximum(self, a: Any, b: Any) -> Any:
        """Return a ball that contains the larger of a and b."""
        return a.max(b)

    def hull(self, a: Any, b: Any) -> Any:
        """Return a ball that contains both."""
        return a.union(b)

    def point(self, x: Any) -> Any:
        """Return the middle of x."""
        return x.mid()

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
def precision_restored() -> Iterator[None]:
    """Put flint's working precision back at the end."""
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


def fraction(value: Any) -> Fraction:
    """Return the middle of a ball; an exponent beyond every format is replaced by EXPONENT_LIMIT."""
    man, exp = value.mid().man_exp()
    mantissa, exponent = int(man), int(exp)
    top = exponent + mantissa.bit_length()
    if mantissa and abs(top) > EXPONENT_LIMIT:
        exponent += (EXPONENT_LIMIT if top > 0 else -EXPONENT_LIMIT) - top
    return Fraction(mantissa) * Fraction(2) ** exponent if mantissa else Fraction(0)


def top(value: Any) -> int:
    """Return the least k with |middle| < 2**k; for a middle that is not 0."""
    mantissa, exponent = value.mid().man_exp()
    return int(exponent) + int(abs(mantissa)).bit_length()


def ball_truth(reference: Reference, inputs: tuple[Float64Array, ...], fmt: Format) -> Sum:
    """Return the reference at every point (columns of ``inputs``, finite values of ``fmt``)."""
    bits = max(fmt.precision + GUARD_BITS, PAIR_BITS)
    values = np.empty(len(inputs[0]), dtype=object)
    with precision_restored():
        precision = flint.ctx.prec
        for i, point in enumerate(zip(*(column.tolist() for column in inputs), strict=True)):
            try:
                values[i] = ball(reference, point, bits)
                precision = max(precision, flint.ctx.prec)
            except Undefined:
                values[i] = math.nan
        flint.ctx.prec = precision
        return to_sum(values)


_type_is_float = np.frompyfunc(lambda x: type(x) is float, 1, 1)
_zero = np.frompyfunc(flint.arb.is_zero, 1, 1)
_exact = np.frompyfunc(flint.arb.is_exact, 1, 1)
_radius = np.frompyfunc(flint.arb.rad, 1, 1)


def is_float(values: Objects) -> BoolArray:
    """Tell which elements are Python floats: inf, -inf or nan among balls."""
    return np.asarray(_type_is_float(values), dtype=bool)


def _is_zero(values: Objects) -> BoolArray:
    return np.asarray(_zero(values), dtype=bool)


def to_sum(values: Objects) -> Sum:
    """Return balls (one axis; Python floats inf and nan among them) as a Sum.

    Flint's precision has to be that of the balls or more.
    """
    n = len(values)
    hi, lo, err = np.empty(n), np.zeros(n), np.zeros(n)
    scale = np.zeros(n, dtype=np.int64)
    special = is_float(values)
    hi[special] = values[special].astype(np.float64)
    index = np.flatnonzero(~special)
    h = values[index].astype(np.float64)
    # A value between these needs no scale: hi and lo and their errors are normal float64 numbers.
    plain = (np.abs(h) > 2.0**-900) & (np.abs(h) < 2.0**1000) | _is_zero(values[index])
    for i in index[~plain]:
        hi[i], lo[i], err[i], scale[i] = _scaled(values[i])
    index, h = index[plain], h[plain]
    rest = values[index] - h
    rounded = rest.astype(np.float64)
    exact = np.asarray(_exact(rest), dtype=bool) & _is_zero(rest - rounded)
    # The ball's radius, and the rounding of lo to float64; a little more, for theirs.
    bound = 1.01 * np.asarray(_radius(rest), dtype=np.float64) + np.abs(rounded) * 2.0**-52 + 2.0**-1074
    hi[index], lo[index], err[index] = h, rounded, np.where(exact, 0.0, bound)
    return Sum(hi, lo, err, scale)


def _scaled(value: Any) -> tuple[float, float, float, int]:
    """Return (hi, lo, err, scale) of a ball that is beyond float64, or nearly so."""
    radius = value.rad()
    size = top(value) if not value.mid().is_zero() else top(radius)
    if abs(size) > 15000:
        # Saturate: no format tells 2**(+-20000) from what lies beyond it.
        sign = -1.0 if value < 0 else 1.0
        return (sign * math.inf, 0.0, 0.0, 0) if size > 0 else (sign, 0.0, 0.0, -SATURATED)
    scale = max(size, size if radius.is_zero() else top(radius))
    scaled = fraction(value) / Fraction(2) ** scale
    hi = float(scaled)
    lo = float(scaled - Fraction(hi))
    if radius.is_zero() and scaled == Fraction(hi) + Fraction(lo):
        return hi, lo, 0.0, scale
    width = 1.01 * float(radius * flint.arb(2) ** -scale)
    return hi, lo, width + abs(hi) * 2.0**-104, scale
