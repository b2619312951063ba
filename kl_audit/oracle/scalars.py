"""Object arrays of exact scalars (Arb balls or mpmath intervals) with infinite and undefined elements.

Every finite element is an enclosure of a real number.  What is not a number is kept beside them in a
float64 array and follows IEEE 754, which is what a limit gives: log(0) = -inf, x + -inf = -inf, and
inf - inf, 0 * inf and 0 / 0 are nan, undefined.  Whatever an enclosure leaves open raises Undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kl_audit.formats import Float64Array
from kl_audit.oracle.exact import UNKNOWN, Undecided, Undefined
from kl_audit.oracle.truth import BoolArray

ObjectArray = npt.NDArray[np.object_]
#: -1, 0 and 1 are signs or the order of two numbers; UNKNOWN is not settled by the enclosures.
Codes = npt.NDArray[np.int8]
#: The code of an undefined element, which is not in any order.
NAN = 3


class Scalars(Protocol):
    """The arithmetic of one element: BallOps and IntervalOps.

    Functions take finite scalars; they return a Python float where the result is surely infinite or
    undefined (log(0), sqrt(-1)), and raise Undecided where the enclosure leaves that open.
    """

    def number(self, x: int | float | Fraction) -> Any:
        """Return the scalar that holds a finite number."""

    def sign(self, x: Any) -> int:
        """Return -1, 0 (exactly zero) or 1, or UNKNOWN."""

    def maximum(self, a: Any, b: Any) -> Any:
        """Return an enclosure of the larger."""

    def hull(self, a: Any, b: Any) -> Any:
        """Return an enclosure of everything between a and b."""

    def point(self, x: Any) -> Any:
        """Return a scalar without width that lies within x."""

    def divide(self, a: Any, b: Any) -> Any:
        """Return a / b."""

    def exp(self, x: Any) -> Any:
        """Return e**x."""

    def expm1(self, x: Any) -> Any:
        """Return e**x - 1."""

    def log(self, x: Any) -> Any:
        """Return the natural logarithm."""

    def log1p(self, x: Any) -> Any:
        """Return log(1 + x)."""

    def sqrt(self, x: Any) -> Any:
        """Return the square root."""


@dataclass(frozen=True)
class Elements:
    """An array of scalars: ``data`` is an exact zero wherever ``special`` is inf, -inf or nan.

    ``special`` has the same shape, is 0 at the finite elements, and None where all are finite.
    """

    data: ObjectArray
    special: Float64Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.data.shape

    def specials(self) -> Float64Array:
        """Return ``special``, as an array in any case."""
        return np.zeros(self.shape) if self.special is None else self.special

    def nonfinite(self) -> BoolArray:
        """Tell which elements are infinite or undefined."""
        return ~np.isfinite(self.specials())

    def mixed(self) -> ObjectArray:
        """Return the scalars, with Python floats where an element is infinite or undefined."""
        if self.special is None:
            return self.data
        out, mask = self.data.copy(), self.nonfinite()
        out[mask] = self.special[mask].astype(object)
        return out

    def map(self, move: Callable[[Any], Any]) -> Elements:
        """Apply a rearrangement (reshape, take, flip, ...) to the array."""
        special = None if self.special is None else np.asarray(move(self.special))
        return Elements(as_objects(move(self.data)), special)


def as_objects(value: Any) -> ObjectArray:
    """Return an object array; a reduction over all axes gives a bare scalar."""
    if isinstance(value, np.ndarray):
        return value
    out = np.empty((), dtype=object)
    out[()] = value
    return out


def _is_float(x: Any) -> bool:
    return type(x) is float


_floats = np.frompyfunc(_is_float, 1, 1)


class Arithmetic:
    """Arithmetic on Elements, by the scalars given; shapes broadcast as in NumPy."""

    def __init__(self, scalars: Scalars) -> None:
        self.scalars = scalars
        self.zero = scalars.number(0)
        self._number = np.frompyfunc(scalars.number, 1, 1)
        self._sign = np.frompyfunc(scalars.sign, 1, 1)
        self._larger = np.frompyfunc(self._maximum_of_two, 2, 1)
        self._hull = np.frompyfunc(scalars.hull, 2, 1)
        self._divide = np.frompyfunc(scalars.divide, 2, 1)
        self._point = np.frompyfunc(scalars.point, 1, 1)

    # Making elements

    def number(self, x: int | float | Fraction) -> Elements:
        """Return one number, of shape ()."""
        return self.numbers(np.asarray(x, dtype=object if isinstance(x, Fraction) else None))

    def numbers(self, values: npt.NDArray[Any]) -> Elements:
        """Return an array of numbers (floats of any format, integers, booleans, or Fractions)."""
        if values.dtype == bool:
            values = values.astype(np.int64)
        if values.dtype.kind not in "iuO":
            values = values.astype(np.float64)
            special = np.where(np.isfinite(values), 0.0, values)
            if special.any():  # nan counts as true
                return Elements(as_objects(self._number(np.where(special == 0, values, 0.0))), special)
        return Elements(as_objects(self._number(values)))

    def full(self, shape: tuple[int, ...], x: int | float) -> Elements:
        """Return an array filled with a number."""
        return self.number(x).map(lambda v: np.broadcast_to(v, shape))

    def split(self, mixed: ObjectArray) -> Elements:
        """Return Elements from scalars with Python floats among them."""
        mask = np.asarray(_floats(mixed), dtype=bool)
        if not mask.any():
            return Elements(mixed)
        values = mixed[mask].astype(np.float64)
        data, special = mixed.copy(), np.zeros(mixed.shape)
        finite = np.isfinite(values)
        data[mask] = self._number(np.where(finite, values, 0.0))
        special[mask] = np.where(finite, 0.0, values)
        return Elements(data, None if finite.all() else special)

    # Arithmetic

    def add(self, x: Elements, y: Elements) -> Elements:
        """Return x + y."""
        return self._apply(np.add, np.add, x, y)

    def subtract(self, x: Elements, y: Elements) -> Elements:
        """Return x - y."""
        return self._apply(np.subtract, np.subtract, x, y)

    def multiply(self, x: Elements, y: Elements) -> Elements:
        """Return x * y."""
        return self._apply(np.multiply, np.multiply, x, y, signed=True)

    def divide(self, x: Elements, y: Elements) -> Elements:
        """Return x / y: infinite where only y is zero, and then of the sign of x."""
        return self._apply(self._divide, np.divide, x, y, signed=True)

    def negate(self, x: Elements) -> Elements:
        """Return -x."""
        return x.map(np.negative)

    def power(self, x: Elements, n: int) -> Elements:
        """Return x**n for an integer n."""
        if n < 0:
            return self.divide(self.number(1), self.power(x, -n))
        out, square = self.full(x.shape, 1), x
        while n:
            if n & 1:
                out = self.multiply(out, square)
            n >>= 1
            square = self.multiply(square, square) if n else square
        return out

    def _apply(
        self, ufunc: Any, float_ufunc: Any, x: Elements, y: Elements, signed: bool = False
    ) -> Elements:
        mixed = as_objects(ufunc(x.data, y.data))
        if x.special is not None or y.special is not None:
            mask = np.asarray(x.nonfinite() | y.nonfinite())
            with np.errstate(all="ignore"):
                values = float_ufunc(self._stand_in(x, mask, signed), self._stand_in(y, mask, signed))
            mixed = mixed.copy()
            mixed[mask] = values.astype(object)
        elif ufunc is not self._divide:
            return Elements(mixed)
        return self.split(mixed)

    def _stand_in(self, x: Elements, mask: BoolArray, signed: bool) -> Float64Array:
        """Return float64 numbers for the elements under the mask: finite ones as 0 or their sign."""
        out = np.array(np.broadcast_to(x.specials(), mask.shape)[mask])
        finite = np.isfinite(out)
        if signed and finite.any():
            data = np.broadcast_to(x.data, mask.shape)[mask]
            out[finite] = decided(self._sign(data[finite]).astype(np.int8))
        return out

    def scaled(self, g: Elements, local: Elements) -> Elements:
        """Return g * local, where a g that is exactly 0 stays 0 beside an infinite or undefined local.

        For cotangents: what was not selected contributes nothing.
        """
        if local.special is not None:
            local = self.where(self.signs(g) == 0, self.number(0), local)
        return self.multiply(g, local)

    # Functions

    def unary(self, name: str, x: Elements) -> Elements:
        """Return exp, expm1, log, log1p or sqrt of x."""
        mixed = as_objects(np.frompyfunc(getattr(self.scalars, name), 1, 1)(x.data))
        if x.special is not None:
            mask = x.nonfinite()
            with np.errstate(all="ignore"):
                mixed[mask] = getattr(np, name)(x.special[mask]).astype(object)
        return self.split(mixed)

    def sigmoid(self, x: Elements) -> Elements:
        """Return 1 / (1 + e**-x)."""
        one = self.number(1)
        return self.divide(one, self.add(one, self.unary("exp", self.negate(x))))

    def absolute(self, x: Elements) -> Elements:
        """Return |x|."""
        return x.map(np.absolute)

    def maximum(self, x: Elements, y: Elements) -> Elements:
        """Return the larger of x and y."""
        return self.split(as_objects(self._larger(x.mixed(), y.mixed())))

    def _maximum_of_two(self, a: Any, b: Any) -> Any:
        specials = [v for v in (a, b) if type(v) is float]
        if not specials:
            return self.scalars.maximum(a, b)
        if any(math.isnan(v) for v in specials):
            return math.nan
        if type(a) is float:
            return a if a > 0 else b
        return b if b > 0 else a

    def hull(self, x: Elements, y: Elements) -> Elements:
        """Return everything between x and y; undefined where one of them is not finite."""
        data = as_objects(self._hull(x.data, y.data))
        mask = np.asarray(x.nonfinite() | y.nonfinite())
        return Elements(data, np.where(mask, np.nan, 0.0) if mask.any() else None)

    def point(self, x: Elements) -> Elements:
        """Return numbers without width within finite x; 0 for the others."""
        return Elements(as_objects(self._point(x.data)))

    # Decisions

    def signs(self, x: Elements) -> Codes:
        """Return the sign of every element: -1, 0, 1, UNKNOWN or NAN."""
        codes: Codes = np.asarray(self._sign(x.data)).astype(np.int8)
        if x.special is not None:
            mask = x.nonfinite()
            codes[mask] = np.where(np.isnan(x.special[mask]), NAN, np.sign(x.special[mask]))
        return codes

    def compare(self, x: Elements, y: Elements) -> Codes:
        """Return the sign of x - y as ``signs`` does; equal infinities are equal."""
        codes: Codes = np.asarray(self._sign(np.subtract(x.data, y.data))).astype(np.int8)
        mask = np.asarray(x.nonfinite() | y.nonfinite())
        if mask.any():
            a, b = self._stand_in(x, mask, False), self._stand_in(y, mask, False)
            order = (a > b).astype(np.int8) - (a < b)
            codes[mask] = np.where(np.isnan(a) | np.isnan(b), NAN, order)
        return codes

    def where(self, condition: BoolArray, x: Elements, y: Elements) -> Elements:
        """Select elementwise."""
        special = None
        if x.special is not None or y.special is not None:
            special = np.where(condition, x.specials(), y.specials())
            special = special if special.any() else None
        return Elements(as_objects(np.where(condition, x.data, y.data)), special)

    def branch(self, g: Elements, codes: Codes, above: int, below: int, what: str) -> Elements:
        """Return the cotangent above * g where the code is 1 and below * g where it is -1.

        At a kink (code 0) the derivative is undefined, unless g is zero: raises Undefined.  Where the
        kink, or that g is zero, is not settled, the result encloses what both branches give.
        """
        branches = {1: g, -1: self.negate(g), 0: self.full(g.shape, 0)}
        up, down = branches[above], branches[below]
        out = self.where(codes == 1, up, down)
        open_ = (codes == 0) | (codes == UNKNOWN)
        if open_.any():
            sloped = np.abs(self.signs(g)) == 1
            if np.any((codes == 0) & sloped):
                raise Undefined(f"no derivative at a kink: {what}")
            out = self.where(open_, self.hull(up, down), out)
        return self.where(codes == NAN, self.number(math.nan), out) if np.any(codes == NAN) else out

    # Along axes; None is all of them

    def sum(self, x: Elements, axis: int | None, keepdims: bool = False) -> Elements:
        """Return the sum along an axis."""
        total: Any = np.add.reduce  # its stub knows no object arrays
        data = as_objects(total(x.data, axis=axis, keepdims=keepdims, initial=self.zero))
        if x.special is None:
            return Elements(data)
        with np.errstate(invalid="ignore"):
            special = np.asarray(np.sum(x.special, axis=axis, keepdims=keepdims))
        return self.override(data, special)

    def cumsum(self, x: Elements, axis: int) -> Elements:
        """Return the cumulative sum along an axis."""
        data = as_objects(np.add.accumulate(x.data, axis=axis))
        if x.special is None:
            return Elements(data)
        with np.errstate(invalid="ignore"):
            return self.override(data, np.cumsum(x.special, axis=axis))

    def largest(self, x: Elements, axis: int) -> Elements:
        """Return the largest element along an axis, which is kept with length 1."""
        out = self._larger.reduce(x.mixed(), axis=axis)
        return self.split(as_objects(out)).map(lambda v: np.expand_dims(v, axis))

    def override(self, data: ObjectArray, special: Float64Array) -> Elements:
        """Return ``data`` (changed in place) with the infinite and undefined elements of ``special``."""
        mask = ~np.isfinite(special)
        if not mask.any():
            return Elements(data)
        data[mask] = self.zero
        return Elements(data, special)


def decided(codes: Codes) -> Codes:
    """Return the codes; raises Undecided if one of them is UNKNOWN."""
    if np.any(codes == UNKNOWN):
        raise Undecided
    return codes
