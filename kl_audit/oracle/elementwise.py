"""Operators and elementwise functions on exact arrays, with their derivatives."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from kl_audit.errors import UsageError
from kl_audit.oracle.scalars import NAN, Arithmetic, Codes, Elements, Scalars, decided
from kl_audit.oracle.tape import Array, Rule
from kl_audit.oracle.truth import BoolArray

#: Local derivatives: name -> f'(arithmetic, x, f(x)).  At x = -inf those of exp and expm1 are 0.
DERIVATIVES: dict[str, Callable[[Arithmetic, Elements, Elements], Elements]] = {
    "exp": lambda c, x, y: y,
    "expm1": lambda c, x, y: c.unary("exp", x),
    "log": lambda c, x, y: c.divide(c.number(1), x),
    "log1p": lambda c, x, y: c.divide(c.number(1), c.add(c.number(1), x)),
    "sqrt": lambda c, x, y: c.divide(c.number(Fraction(1, 2)), y),
    "sigmoid": lambda c, x, y: c.multiply(y, c.sigmoid(c.negate(x))),
    "softplus": lambda c, x, y: c.sigmoid(x),
}


class Elementwise:
    """The part of the vocabulary that makes arrays and acts elementwise."""

    #: Tells an expression that it runs in real numbers.
    exact = True

    def __init__(self, scalars: Scalars) -> None:
        self.arithmetic = Arithmetic(scalars)

    # Making arrays

    def number(self, x: int | float | Fraction) -> Array:
        """Return a number, a float exactly as it is stored."""
        return Array(self, self.arithmetic.number(x))

    def array(self, values: npt.ArrayLike) -> Array:
        """Return an array of numbers (float64, exactly as stored; also integers and booleans)."""
        return Array(self, self.arithmetic.numbers(np.asarray(values)))

    def lift(self, x: Any) -> Array:
        """Return x as an Array: an Array, a number or a NumPy array."""
        if isinstance(x, Array):
            return x
        if isinstance(x, int | float | Fraction | np.generic | np.ndarray | list | tuple):
            return self.number(x) if isinstance(x, int | float | Fraction) else self.array(x)
        raise UsageError(f"expected an array or a number in an exact expression, got {type(x).__name__}")

    def is_array(self, x: Any) -> bool:
        """Whether x is an exact array."""
        return isinstance(x, Array)

    def constant(self, value: float | Fraction, ref: Any) -> Array:
        """Return a number; a float is taken exactly as it is stored."""
        return self.number(value)

    def full(self, shape: tuple[int, ...], value: float, ref: Any) -> Array:
        """Return an array filled with a number."""
        return Array(self, self.arithmetic.full(tuple(shape), value))

    def integer(self, index: Any, ref: Any = None) -> npt.NDArray[np.int64]:
        """Return an index array."""
        return np.asarray(index, dtype=np.int64)

    def as_bool(self, x: Any) -> BoolArray:
        """Return x != 0."""
        return x != 0 if isinstance(x, Array) else np.asarray(x) != 0

    def cast(self, x: Any, name: str) -> Array:
        """Return x: real numbers have no format."""
        return self.lift(x)

    def like(self, x: Any, ref: Any) -> Array:
        """Return x: real numbers have no format."""
        return self.lift(x)

    def format_of(self, x: Any) -> str:
        """Return ``exact``."""
        return "exact"

    def stop_gradient(self, x: Any) -> Array:
        """Return the value, whose derivative is 0."""
        return Array(self, self.lift(x).elements)

    # Operators

    def add(self, a: Any, b: Any) -> Array:
        """Return a + b."""
        x, y = self.lift(a), self.lift(b)
        out = self.arithmetic.add(x.elements, y.elements)
        return Array(self, out, [(x, self._to(x)), (y, self._to(y))])

    def subtract(self, a: Any, b: Any) -> Array:
        """Return a - b."""
        x, y = self.lift(a), self.lift(b)
        c = self.arithmetic
        to_y = self._to(y)
        out = c.subtract(x.elements, y.elements)
        return Array(self, out, [(x, self._to(x)), (y, lambda g: to_y(c.negate(g)))])

    def multiply(self, a: Any, b: Any) -> Array:
        """Return a * b."""
        x, y, c = self.lift(a), self.lift(b), self.arithmetic
        out = c.multiply(x.elements, y.elements)
        return self._node(out, (x, lambda: y.elements), (y, lambda: x.elements))

    def divide(self, a: Any, b: Any) -> Array:
        """Return a / b."""
        x, y, c = self.lift(a), self.lift(b), self.arithmetic
        out = c.divide(x.elements, y.elements)
        return self._node(
            out,
            (x, lambda: c.divide(c.number(1), y.elements)),
            (y, lambda: c.negate(c.divide(out, y.elements))),
        )

    def negate(self, x: Array) -> Array:
        """Return -x."""
        c = self.arithmetic
        return Array(self, c.negate(x.elements), [(x, c.negate)])

    def power(self, x: Array, n: Any) -> Array:
        """Return x**n; raises UsageError unless n is an integer."""
        try:
            n = operator.index(n)
        except TypeError:
            raise UsageError(f"expected an integer exponent in x ** n, got {n!r}; use exp and log") from None
        c = self.arithmetic

        def slope() -> Elements:
            return c.multiply(c.number(n), c.power(x.elements, n - 1)) if n else c.number(0)

        return self._node(c.power(x.elements, n), (x, slope))

    def compare(self, a: Any, b: Any) -> Codes:
        """Return -1, 0 or 1 (or NAN) elementwise; raises Undecided."""
        return decided(self.arithmetic.compare(self.lift(a).elements, self.lift(b).elements))

    # Elementwise functions

    def _function(self, name: str, a: Any, value: Callable[[Elements], Elements]) -> Array:
        x, c = self.lift(a), self.arithmetic
        out = value(x.elements)

        def rule(g: Elements) -> Elements:
            local = DERIVATIVES[name](c, x.elements, out)
            if x.elements.special is not None:
                masked = np.isneginf(x.elements.special) & (c.signs(local) == 0)
                g = c.where(masked, c.number(0), g)
            return c.scaled(g, local)

        return Array(self, out, [(x, rule)])

    def _unary(self, name: str, x: Any) -> Array:
        return self._function(name, x, lambda e: self.arithmetic.unary(name, e))

    def exp(self, x: Any) -> Array:
        """e**x."""
        return self._unary("exp", x)

    def expm1(self, x: Any) -> Array:
        """e**x - 1."""
        return self._unary("expm1", x)

    def log(self, x: Any) -> Array:
        """The natural logarithm: -inf at 0, undefined below."""
        return self._unary("log", x)

    def log1p(self, x: Any) -> Array:
        """log(1 + x)."""
        return self._unary("log1p", x)

    def sqrt(self, x: Any) -> Array:
        """The square root, undefined below 0."""
        return self._unary("sqrt", x)

    def sigmoid(self, x: Any) -> Array:
        """1 / (1 + e**-x)."""
        return self._function("sigmoid", x, self.arithmetic.sigmoid)

    def softplus(self, x: Any) -> Array:
        """log(1 + e**x)."""
        c = self.arithmetic
        return self._function("softplus", x, lambda e: c.unary("log1p", c.unary("exp", e)))

    def log_sigmoid(self, x: Any) -> Array:
        """-log(1 + e**-x)."""
        return -self.softplus(-self.lift(x))

    def abs(self, a: Any) -> Array:
        """|a|; its derivative at 0 is undefined."""
        x, c = self.lift(a), self.arithmetic

        def rule(g: Elements) -> Elements:
            return c.branch(g, c.signs(x.elements), 1, -1, "abs of 0")

        return Array(self, c.absolute(x.elements), [(x, rule)])

    def maximum(self, a: Any, b: Any) -> Array:
        """The larger of a and b; its derivative where they are equal is undefined."""
        x, y, c = self.lift(a), self.lift(b), self.arithmetic
        to_x, to_y = self._to(x), self._to(y)

        def codes() -> Codes:
            found = c.compare(x.elements, y.elements)
            return np.where(found == NAN, found, np.int8(1)) if x is y else found

        what = "the two sides of minimum, maximum or clip are equal"
        out = c.maximum(x.elements, y.elements)
        return Array(self, out, [
            (x, lambda g: to_x(c.branch(g, codes(), 1, 0, what))),
            (y, lambda g: to_y(c.branch(g, codes(), 0, 1, what))),
        ])  # fmt: skip

    def minimum(self, a: Any, b: Any) -> Array:
        """The smaller of a and b; its derivative where they are equal is undefined."""
        if a is b:
            return self.lift(a)
        return -self.maximum(-self.lift(a), -self.lift(b))

    def clip(self, x: Any, low: Any, high: Any) -> Array:
        """min(max(x, low), high); None leaves a side open."""
        out = self.lift(x)
        out = out if low is None else self.maximum(out, low)
        return out if high is None else self.minimum(out, high)

    def where(self, condition: Any, a: Any, b: Any) -> Array:
        """Select elementwise; what is not selected contributes nothing to value or derivative."""
        x, y, c = self.lift(a), self.lift(b), self.arithmetic
        to_x, to_y, zero = self._to(x), self._to(y), c.number(0)
        chosen = self.as_bool(condition)
        return Array(self, c.where(chosen, x.elements, y.elements), [
            (x, lambda g: to_x(c.where(chosen, g, zero))),
            (y, lambda g: to_y(c.where(chosen, zero, g))),
        ])  # fmt: skip

    def xlogy(self, a: Any, b: Any) -> Array:
        """a log(b), and 0 where a is exactly 0; the derivatives there are log(b) and 0."""
        x, y, c = self.lift(a), self.lift(b), self.arithmetic
        zero = c.signs(x.elements) == 0
        divisor = c.where(zero, c.number(1), y.elements)
        out = c.multiply(x.elements, c.unary("log", divisor))
        return self._node(
            out,
            (x, lambda: c.unary("log", y.elements)),
            (y, lambda: c.divide(x.elements, divisor)),
        )

    def isnan(self, x: Any) -> BoolArray:
        """Whether an element is undefined."""
        return np.isnan(self.lift(x).elements.specials())

    def isinf(self, x: Any) -> BoolArray:
        """Whether an element is infinite."""
        return np.isinf(self.lift(x).elements.specials())

    def isfinite(self, x: Any) -> BoolArray:
        """Whether an element is a number."""
        return ~self.lift(x).elements.nonfinite()

    def _to(self, x: Array) -> Rule:
        """Return the rule that sums a cotangent over the axes along which x was broadcast."""
        c, shape = self.arithmetic, x.shape

        def rule(g: Elements) -> Elements:
            while len(g.shape) > len(shape):
                g = c.sum(g, 0)
            for axis, n in enumerate(shape):
                if n == 1 and g.shape[axis] != 1:
                    g = c.sum(g, axis, keepdims=True)
            return g

        return rule

    def _node(self, out: Elements, *parents: tuple[Array, Callable[[], Elements]]) -> Array:
        """Return the result of an elementwise operation, given its local derivatives."""
        c = self.arithmetic

        def rule(to: Rule, local: Callable[[], Elements]) -> Rule:
            return lambda g: to(c.scaled(g, local()))

        return Array(self, out, [(x, rule(self._to(x), local)) for x, local in parents])
