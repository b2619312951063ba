"""The certified value of a quantity at one point, by mpmath interval arithmetic.

Two evaluations at different precision that agree prove nothing (below 2**-prec mpmath's expm1(x) - x
is 0 at both); an interval that contains the value does.  Precision is doubled until the interval is
relatively narrower than 2**-bits, and a point where that never happens is refused.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
from mpmath.ctx_iv import MPIntervalContext

from kl_audit.errors import OracleError
from kl_audit.formats import Format
from kl_audit.ulp import floor_log2

Reference = Callable[..., Any]

#: Bits certified beyond the precision of the format (DESIGN: error below 2**-(p+40)).
GUARD_BITS = 40

#: 30 digits and the rounding to them.
PRINTED_BITS = 112

#: The smallest float64 needs about 2 * 1074 + 93 bits in k3; beyond this, give up.
MAX_PRECISION = 1 << 15

#: Exponents beyond +-this are replaced by it: no format can tell, and a Fraction cannot hold them.
EXPONENT_LIMIT = 1 << 14


#: The sign of an enclosure that contains zero and more.
UNKNOWN = 2


class Undecided(Exception):  # noqa: N818 - a signal for more precision, not an error
    """An interval straddles a branch point: try again with more bits."""


class Undefined(Exception):  # noqa: N818 - a property of the input, not an error
    """The quantity has no value here (a derivative exactly at the kink of a clamp)."""


#: A context costs a millisecond to make; one a thread is enough.
_CONTEXT = threading.local()


class IntervalOps:
    """The operations a reference may use, on mpmath intervals."""

    def __init__(self, precision: int) -> None:
        if not hasattr(_CONTEXT, "value"):
            _CONTEXT.value = MPIntervalContext()
        self._ctx = _CONTEXT.value
        self._ctx.prec = precision
        slack = self._ctx.mpf(2) ** (2 - precision)
        self._widening = self._ctx.mpf([(1 - slack).a, (1 + slack).b])

    def number(self, x: int | float | Fraction) -> Any:
        """Return the interval that holds x: a point for a float, as narrow as can be for a Fraction."""
        if isinstance(x, Fraction):
            return self._ctx.mpf(x.numerator) / self._ctx.mpf(x.denominator)
        return self._ctx.mpf(x)

    def exp(self, x: Any) -> Any:
        """Return an interval that contains e**x.

        mpmath's own does not always: below about 2**(-prec/2) its e**x is 1 + x exactly, rounded
        neither down nor up, and e**x - x - 1 is then the point 0.  Its error is within a few units
        in the last place, so the interval is widened by four.
        """
        if x.a == 0 and x.b == 0:
            return self._ctx.mpf(1)
        return self._ctx.exp(x) * self._widening

    def expm1(self, x: Any) -> Any:
        """Return an interval that contains e**x - 1; wide for a small x, as the subtraction is."""
        return self.exp(x) - 1

    def log(self, x: Any) -> Any:
        """Return an interval that contains log(x), widened as in ``exp``.

        -inf at 0 and nan below; raises Undecided where x contains 0 and more.
        """
        sign = self.sign(x)
        if sign == 1:
            return self._ctx.log(x) * self._widening
        if sign == UNKNOWN:
            raise Undecided
        return -math.inf if sign == 0 else math.nan

    def log1p(self, x: Any) -> Any:
        """Return an interval that contains log(1 + x).

        |log(1 + x) - x| <= x^2 for |x| <= 1/2: below 2**-prec the widened x does, whatever its exponent.
        """
        tiny = self._ctx.mpf(2) ** -self._ctx.prec
        if x.a > -tiny.a and x.b < tiny.b:
            return x * self._widening
        return self.log(1 + x)

    def sqrt(self, x: Any) -> Any:
        """Return an interval that contains the root, widened as in ``exp``; nan below 0."""
        sign = self.sign(x)
        if sign == UNKNOWN:
            raise Undecided
        return math.nan if sign == -1 else self._ctx.sqrt(x) * self._widening

    def divide(self, a: Any, b: Any) -> Any:
        """Return a / b; +-inf or nan where b is 0, Undecided where it contains 0 and more."""
        sign = self.sign(b)
        if sign == UNKNOWN:
            raise Undecided
        return a / b if sign else over_zero(self.sign(a))

    def sign(self, x: Any) -> int:
        """Return the sign, 0 for the point 0 and UNKNOWN for an interval with 0 inside or as an end."""
        low, high = x._mpi_
        below, above = mpmath.libmp.mpf_sign(low), mpmath.libmp.mpf_sign(high)
        if below > 0 or above < 0:
            return int(below)
        return UNKNOWN if below or above else 0

    def maximum(self, a: Any, b: Any) -> Any:
        """Return an interval that contains the larger of a and b."""
        return self._ctx.mpf([max(a.a, b.a), max(a.b, b.b)])

    def hull(self, a: Any, b: Any) -> Any:
        """Return the least interval that contains both."""
        return self._ctx.mpf([min(a.a, b.a), max(a.b, b.b)])

    def point(self, x: Any) -> Any:
        """Return the lower end of x."""
        return x.a

    def clip(self, x: Any, low: float, high: float) -> Any:
        """Return min(max(x, low), high); monotone, so it acts on the ends of the interval."""
        ends = [min(max(end, low), high) for end in (x.a, x.b)]
        return self._ctx.mpf([ends[0], ends[1]])

    def inside(self, x: Any, low: float, high: float) -> bool:
        """Decide low < x < high; raises Undecided, or Undefined exactly on a boundary."""
        if low < x.a and x.b < high:
            return True
        if x.b < low or x.a > high:
            return False
        raise Undefined if x.a == x.b else Undecided


def over_zero(sign: int) -> float:
    """Return what a number of the given sign divided by zero is; raises Undecided for UNKNOWN."""
    if sign == UNKNOWN:
        raise Undecided
    return sign * math.inf if sign else math.nan


def _man_exp(raw: tuple[int, Any, int, int]) -> Fraction:
    """Turn a raw mpf (sign, mantissa, exponent, bitcount) into a Fraction, exponent limited."""
    sign, mantissa, exponent, bits = raw
    if not mantissa:
        return Fraction(0)
    top = exponent + bits
    if abs(top) > EXPONENT_LIMIT:
        exponent += (EXPONENT_LIMIT if top > 0 else -EXPONENT_LIMIT) - top
    value = Fraction(int(mantissa)) * Fraction(2) ** exponent
    return -value if sign else value


def _one_binade(near: tuple[int, Any, int, int], far: tuple[int, Any, int, int]) -> bool:
    """Tell whether everything between two raw mpf of one sign has one floor(log2), the ends aside.

    An ulp halves at a power of two, so an interval must not have one inside; as its far end it may.
    """
    step = (far[2] + far[3]) - (near[2] + near[3])
    return step == 0 or (step == 1 and far[1] == 1)


def certify(reference: Reference, inputs: tuple[float, ...], fmt: Format, at_least: int = 0) -> Fraction:
    """Return the value of ``reference`` at ``inputs``, within 2**-(p+40) relative, in its binade.

    ``at_least`` asks for more bits than that, for a value that is printed.

    ``inputs`` are finite values of ``fmt`` and are taken exactly as stored.  Raises Undefined where
    the quantity has no value and OracleError where the value cannot be certified.
    """
    bits = max(fmt.precision + GUARD_BITS, at_least)
    precision = bits + 32
    while precision <= MAX_PRECISION:
        ops = IntervalOps(precision)
        try:
            value = reference(ops, *(ops.number(x) for x in inputs))
        except Undecided:
            precision *= 2
            continue
        low_raw, high_raw = value._mpi_
        if low_raw == high_raw:
            return _man_exp(low_raw)
        if low_raw[0] == high_raw[0] and low_raw[1] and high_raw[1]:
            width = mpmath.libmp.mpf_sub(high_raw, low_raw)
            near, far = (high_raw, low_raw) if low_raw[0] else (low_raw, high_raw)
            # 2**(top-1) <= |near|, and |width| < 2**(its top): compare exponents only.
            narrow = width[2] + width[3] <= near[2] + near[3] - 1 - bits
            if narrow and _one_binade(near, far):
                return (_man_exp(low_raw) + _man_exp(high_raw)) / 2
            if narrow and precision * 2 > MAX_PRECISION:
                # Nothing but the power of two between the ends is left after 2**15 bits.
                power = Fraction(2) ** floor_log2(_man_exp(far))
                return -power if far[0] else power
        precision *= 2
    shown = ", ".join(float(x).hex() for x in inputs)
    raise OracleError(f"no certified value at ({shown}) within {MAX_PRECISION} bits")


def decimal(value: Fraction, digits: int = 30) -> str:
    """Return ``value`` as a decimal string of ``digits`` significant digits; ``inf`` beyond all formats."""
    if abs(value) >= Fraction(2) ** (EXPONENT_LIMIT - 1):
        return "inf" if value > 0 else "-inf"
    with mpmath.workprec(int(digits * 3.33) + 64):
        number = mpmath.mpf(value.numerator) / mpmath.mpf(value.denominator)
        return str(mpmath.nstr(number, digits, strip_zeros=True, min_fixed=-5, max_fixed=16))
