"""From the tree to closures ``run(ops, variables)``, with constants folded before anything runs.

A framework's arithmetic: constants are folded to one float64 number first, as Python would, and stay floats
here until an array is met.  Exact arithmetic (``ops.exact``): every literal is ``ops.number(Fraction)`` and
nothing is folded.  Closures, so that a tracer (torch.compile, jax.jit) sees calls of ``ops`` and no tree.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from kl_audit.expression import closures
from kl_audit.expression.closures import Run, Variables
from kl_audit.expression.folding import ARITHMETIC, SCALAR, VALUES, nearest, power
from kl_audit.expression.functions import CASTS, FUNCTIONS
from kl_audit.expression.tree import (
    COMPARISONS,
    Binary,
    Call,
    Constant,
    Name,
    Negate,
    Node,
    Not,
    Number,
    Power,
    Take,
)

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne, "and": operator.and_, "or": operator.or_,
}  # fmt: skip


def lower(assignments: Iterable[tuple[str, Node]], body: Node, exact: bool) -> Run:
    """Return the whole expression as one function of ``ops`` and the variables."""
    lowering = _Lowering(exact)
    steps = []
    for name, node in assignments:
        step = lowering.assign(name, node)
        if step is not None:
            steps.append((name, step))
    final = closures.first(lowering.truth(body)) if lowering.is_truth(body) else lowering.array(body)

    def run(ops: Any, variables: Variables) -> Any:
        known = dict(variables)
        for name, step in steps:
            known[name] = step(ops, known)
        return final(ops, known)

    return run


class _Lowering:
    """Lowers nodes in the scope of the assignments so far."""

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self.constants: dict[str, float] = {}
        self.truths: set[str] = set()

    def assign(self, name: str, node: Node) -> Run | None:
        """Take an assignment into the scope; a constant needs no step when the expression runs."""
        is_truth = self.is_truth(node)
        value = self.truth(node) if is_truth else self.number(node)
        self.constants.pop(name, None)
        self.truths.discard(name)
        if isinstance(value, float):
            self.constants[name] = value
            return None
        if is_truth:
            self.truths.add(name)
        return value

    def is_truth(self, node: Node) -> bool:
        """Whether a node is known to be true or false: a comparison, say."""
        match node:
            case Name(name):
                return name in self.truths
            case Binary(op):
                return op not in ARITHMETIC
            case Call(function):
                return FUNCTIONS[function].is_truth
        return isinstance(node, Not)

    # --- numbers -----------------------------------------------------------------------------

    def number(self, node: Node) -> float | Run:
        """Lower a node of numbers: to a float where it is constant, unless exact."""
        value: float | Run
        match node:
            case Number() | Constant():
                value = self._constant(node)
            case Name(name):
                value = self.constants.get(name, closures.variable(name))
            case Negate(operand):
                value = closures.apply(self.number(operand), operator.neg)
            case Power(base, exponent):
                value = self._power(base, exponent)
            case Binary(op, left, right):
                value = self._arithmetic(op, left, right)
            case Take(operand, index):
                value = closures.take(self.array(operand), index)
            case Call():
                value = self._call(node)
            case Not():
                raise AssertionError(f"not a number: {node}")
        return value

    def array(self, node: Node) -> Run:
        """Lower a node that is known not to be constant."""
        run = self.number(node)
        assert not isinstance(run, float)
        return run

    def _constant(self, node: Number | Constant) -> float | Run:
        if not self.exact:
            return nearest(node.value) if isinstance(node, Number) else VALUES[node.name]
        if isinstance(node, Number):
            value = node.value
            return lambda ops, known: ops.number(value)
        name = node.name
        if name == "pi":
            return closures.exact_pi
        if name == "e":
            return lambda ops, known: ops.exp(ops.number(Fraction(1)))
        return lambda ops, known: ops.number(VALUES[name])

    def _power(self, base: Node, exponent: int) -> float | Run:
        value = self.number(base)
        if isinstance(value, float):
            return power(value, exponent)
        run = value
        return lambda ops, known: run(ops, known) ** exponent

    def _arithmetic(self, op: str, left: Node, right: Node) -> float | Run:
        a, b = self.number(left), self.number(right)
        if isinstance(a, float) and isinstance(b, float):
            return ARITHMETIC[op](a, b)
        pair = closures.operate(_OPERATORS[op], a, b)
        return closures.first(pair)

    # --- calls -------------------------------------------------------------------------------

    def _call(self, node: Call) -> float | Run:
        name, function = node.function, FUNCTIONS[node.function]
        if name == "where":
            return self._where(node)
        if name == "clip":
            return self._clip(node)
        values = [self.number(a) for a in node.arguments if a is not None]
        if function.arity == 2:
            return _two(name, *values)
        (run,) = values
        if isinstance(run, float):
            return SCALAR[name](run)
        if name == "nan_to_num":
            return closures.nan_to_num(run, self._constant(Number(Fraction(0))))
        return _of_array(name, run, node.axis)

    def _where(self, node: Call) -> Run:
        condition, *branches = (a for a in node.arguments if a is not None)
        test, (a, b) = self.truth(condition), (self.number(n) for n in branches)
        if isinstance(a, float) and isinstance(b, float):
            return closures.where_constants(test, a, b)
        return closures.where_arrays(test, a, b)

    def _clip(self, node: Call) -> float | Run:
        """Clip by numbers where the limits are numbers, else by maximum and minimum."""
        x, low, high = node.arguments
        assert x is not None
        value = self.number(x)
        limits = [None if limit is None else self._limit(limit) for limit in (low, high)]
        if not isinstance(value, float) and not any(callable(limit) for limit in limits):
            run, (least, most) = value, limits
            return lambda ops, known: ops.clip(run(ops, known), least, most)
        for fn, limit in (("maximum", low), ("minimum", high)):
            value = value if limit is None else _two(fn, value, self.number(limit))
        return value

    def _limit(self, node: Node) -> float | Run:
        """Return a limit as a float where that loses nothing that the arithmetic would keep."""
        value = self.number(node)
        if isinstance(value, float):
            return value
        sign = 1.0
        while isinstance(node, Negate):
            node, sign = node.operand, -sign
        if isinstance(node, Number) and nearest(node.value) == node.value:
            return sign * float(node.value)
        return sign * math.inf if node == Constant("inf") else value

    # --- conditions --------------------------------------------------------------------------

    def truth(self, node: Node) -> Run:
        """Lower a condition, to a pair: the boolean array, a float array it came from or None."""
        match node:
            case Name(name):
                if name in self.truths:
                    return lambda ops, known: known[name]
                return lambda ops, known: (known[name], None)
            case Not(operand):
                return closures.negated(self.truth(operand))
            case Binary(op, left, right) if op in COMPARISONS:
                return closures.operate(_OPERATORS[op], self.number(left), self.number(right))
            case Binary(op, left, right):
                return closures.both(_OPERATORS[op], self.truth(left), self.truth(right))
            case Call(function, (operand,)) if operand is not None:
                return closures.classify(function, self.array(operand))
        raise AssertionError(f"not a condition: {node}")


def _two(name: str, a: float | Run, b: float | Run) -> float | Run:
    if isinstance(a, float) and isinstance(b, float):
        return SCALAR[name](a, b)
    return closures.elementwise2(name, a, b)


def _of_array(name: str, run: Run, axis: int | None) -> Run:
    if FUNCTIONS[name].along:
        return closures.along(name, run, axis)
    if name in CASTS:
        return closures.cast(name, run)
    return closures.square(run) if name == "square" else closures.elementwise(name, run)
