"""The closures that an expression is lowered to: each is one step, ``run(ops, variables)``.

A number that meets an array is an int where it is one, else ``ops.constant``: the dtype stays the array's.
A condition is a pair: the boolean array, and a float array it came from, whose dtype two constant branches
take.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kl_audit.errors import UsageError
from kl_audit.formats import find_format

Variables = dict[str, Any]
Run = Callable[[Any, Variables], Any]


def first(pair: Run) -> Run:
    """Return the first of a pair: the condition without its float array."""
    return lambda ops, known: pair(ops, known)[0]


def variable(name: str) -> Run:
    """Look a variable up."""
    return lambda ops, known: known[name]


def cast(name: str, run: Run) -> Run:
    """Convert to the format called ``name``."""
    return lambda ops, known: ops.cast(run(ops, known), name)


def elementwise(name: str, run: Run) -> Run:
    """Call a function of one array."""
    return lambda ops, known: getattr(ops, name)(run(ops, known))


def exact_pi(ops: Any, known: Variables) -> Any:
    """Exact arithmetic may know pi (``ops.pi()``); a rounded one would be no truth."""
    if not hasattr(ops, "pi"):
        raise UsageError("expression: pi has no exact value here, expected a decimal literal in its place")
    return ops.pi()


def apply(value: float | Run, fn: Callable[[Any], Any]) -> float | Run:
    """Apply a function of one value."""
    if isinstance(value, float):
        return float(fn(value))
    run = value
    return lambda ops, known: fn(run(ops, known))


def operate(fn: Callable[[Any, Any], Any], a: float | Run, b: float | Run) -> Run:
    """Apply an operator; the pair of the result and of an array operand."""
    if isinstance(a, float):
        assert not isinstance(b, float)
        return _number_first(fn, a, b)
    if isinstance(b, float):
        return _number_last(fn, a, b)
    left, right = a, b

    def arrays(ops: Any, known: Variables) -> Any:
        x = left(ops, known)
        return fn(x, right(ops, known)), x

    return arrays


def _number_first(fn: Callable[[Any, Any], Any], number: float, run: Run) -> Run:
    integer = _integer(number)

    def apply(ops: Any, known: Variables) -> Any:
        x = run(ops, known)
        return fn(ops.constant(number, x) if integer is None else integer, x), x

    return apply


def _number_last(fn: Callable[[Any, Any], Any], run: Run, number: float) -> Run:
    integer = _integer(number)

    def apply(ops: Any, known: Variables) -> Any:
        x = run(ops, known)
        return fn(x, ops.constant(number, x) if integer is None else integer), x

    return apply


def _integer(number: float) -> int | None:
    """Return a number as an int where it is one, exactly; -0.0 is none."""
    if not math.isfinite(number) or number != math.floor(number) or abs(number) >= 2**53:
        return None
    return None if number == 0 and math.copysign(1.0, number) < 0 else int(number)


def elementwise2(name: str, a: float | Run, b: float | Run) -> Run:
    """Call a function of two arrays; a number becomes one without axes, which torch asks for."""

    def call(ops: Any, known: Variables) -> Any:
        x = None if isinstance(a, float) else a(ops, known)
        y = ops.full((), b, x) if isinstance(b, float) else b(ops, known)
        return getattr(ops, name)(ops.full((), a, y) if isinstance(a, float) else x, y)

    return call


def along(name: str, run: Run, axis: int | None) -> Run:
    """Call a reduction, or a function along an axis."""
    return lambda ops, known: getattr(ops, name)(run(ops, known), axis=axis)


def take(run: Run, index: int | tuple[int, ...]) -> Run:
    """Take elements along the last axis."""
    if isinstance(index, int):
        return lambda ops, known: ops.take(run(ops, known), index)
    return lambda ops, known: ops.take(run(ops, known), list(index))


def square(run: Run) -> Run:
    """Multiply a value by itself."""

    def square(ops: Any, known: Variables) -> Any:
        x = run(ops, known)
        return x * x

    return square


def nan_to_num(run: Run, zero: float | Run) -> Run:
    """Replace NaN by zero."""

    def replace(ops: Any, known: Variables) -> Any:
        x = run(ops, known)
        return ops.where(ops.isnan(x), _branch(ops, known, zero, x), x)

    return replace


def _branch(ops: Any, known: Variables, value: float | Run, beside: Any) -> Any:
    return ops.constant(value, beside) if isinstance(value, float) else value(ops, known)


def where_arrays(test: Run, a: float | Run, b: float | Run) -> Run:
    """Select, where at least one branch is an array."""

    def select(ops: Any, known: Variables) -> Any:
        condition = test(ops, known)[0]
        x = None if isinstance(a, float) else a(ops, known)
        y = _branch(ops, known, b, x)
        return ops.where(condition, ops.constant(a, y) if isinstance(a, float) else x, y)

    return select


def where_constants(test: Run, a: float, b: float) -> Run:
    """Select one of two numbers: arrays without axes give them a dtype, which Python numbers lack."""

    def select(ops: Any, known: Variables) -> Any:
        condition, ref = test(ops, known)
        for candidate in (ref, *known.values()):
            if candidate is not None and not isinstance(candidate, tuple) and _is_float(ops, candidate):
                return ops.where(condition, ops.full((), a, candidate), ops.full((), b, candidate))
        return ops.where(condition, a, b)

    return select


def _is_float(ops: Any, x: Any) -> bool:
    try:
        find_format(ops.format_of(x))
    except UsageError:
        return False
    return True


def negated(test: Run) -> Run:
    """Negate a condition."""

    def negate(ops: Any, known: Variables) -> Any:
        condition, ref = test(ops, known)
        return ~condition, ref

    return negate


def both(fn: Callable[[Any, Any], Any], left: Run, right: Run) -> Run:
    """Combine two conditions."""

    def combine(ops: Any, known: Variables) -> Any:
        (a, ref), (b, other) = left(ops, known), right(ops, known)
        return fn(a, b), other if ref is None else ref

    return combine


def classify(function: str, run: Run) -> Run:
    """Call isnan, isinf or isfinite."""

    def classify(ops: Any, known: Variables) -> Any:
        x = run(ops, known)
        return getattr(ops, function)(x), x

    return classify
