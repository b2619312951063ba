"""The tree of a formula: small frozen nodes, and the text that parses back to them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from kl_audit.expression.functions import FUNCTIONS, default_axis


@dataclass(frozen=True)
class Number:
    """A literal, not negative, kept exactly."""

    value: Fraction


@dataclass(frozen=True)
class Constant:
    """A constant by name: pi, e, inf, nan."""

    name: str


@dataclass(frozen=True)
class Name:
    """A variable, or a name that was assigned."""

    name: str


@dataclass(frozen=True)
class Negate:
    """-operand."""

    operand: Node


@dataclass(frozen=True)
class Not:
    """``not operand``, also written ``~operand``."""

    operand: Node


@dataclass(frozen=True)
class Power:
    """base ** exponent, the exponent an integer."""

    base: Node
    exponent: int


@dataclass(frozen=True)
class Binary:
    """Two operands: arithmetic ``+ - * /``, comparison ``< <= > >= == !=``, or ``and``, ``or``."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Take:
    """Elements along the last axis: one (which drops the axis) or a list."""

    operand: Node
    index: int | tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A function by its canonical name; clip alone may have None for a limit."""

    function: str
    arguments: tuple[Node | None, ...]
    axis: int | None = None  #: of a reduction or of a function along an axis; None is all


Node: TypeAlias = Number | Constant | Name | Negate | Not | Power | Binary | Take | Call

#: How tightly an operator binds, as in Python.
PRECEDENCE = {
    "or": 1, "and": 2, "not": 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "==": 4, "!=": 4,
    "|": 5, "&": 6, "+": 7, "-": 7, "*": 8, "/": 8,
}  # fmt: skip
COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
COMPARE, UNARY, POSTFIX = 4, 9, 11


def literal(value: float) -> Node:
    """Return a number as it would be written."""
    if math.isnan(value):
        return Constant("nan")
    size: Node = Constant("inf") if math.isinf(value) else Number(Fraction(abs(value)))
    return Negate(size) if math.copysign(1.0, value) < 0 else size


def children(node: Node) -> tuple[Node, ...]:
    """Return the operands, from left to right."""
    match node:
        case Negate(operand) | Not(operand) | Take(operand):
            return (operand,)
        case Power(base):
            return (base,)
        case Binary(_, left, right):
            return (left, right)
        case Call(_, arguments):
            return tuple(a for a in arguments if a is not None)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it, from left to right."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(children(current)))


def to_text(node: Node, floor: int = 0) -> str:
    """Write a node, in parentheses where it binds less tightly than ``floor``."""
    match node:
        case Number(value):
            return number_text(value)
        case Constant(name) | Name(name):
            return name
        case Negate(operand):
            binds, text = UNARY, f"-{to_text(operand, UNARY)}"
        case Not(operand):
            binds = PRECEDENCE["not"]
            text = f"not {to_text(operand, binds)}"
        case Power(base, exponent):
            binds, text = UNARY + 1, f"{to_text(base, POSTFIX)}**{exponent}"
        case Binary(operator, left, right):
            binds = PRECEDENCE[operator]
            beside = binds + (operator in COMPARISONS)  # comparisons do not chain
            text = f"{to_text(left, beside)} {operator} {to_text(right, binds + 1)}"
        case Take(operand, index):
            inside = str(index) if isinstance(index, int) else str(list(index))
            return f"{to_text(operand, POSTFIX)}[{inside}]"
        case Call(function, arguments, axis):
            written = ["None" if a is None else to_text(a) for a in arguments]
            if FUNCTIONS[function].along and axis != default_axis(function):
                written.append(f"axis={axis}")
            return f"{function}({', '.join(written)})"
    return f"({text})" if binds < floor else text


def number_text(value: Fraction) -> str:
    """Write a literal exactly: in decimal where 17 digits suffice or the value needs it, else in hex."""
    twos = (value.denominator & -value.denominator).bit_length() - 1
    dyadic = value.denominator == 1 << twos
    if not (dyadic and twos > 64):
        digits, exponent = _decimal(value, twos)
        if not dyadic or len(digits) <= 17:
            return _positional(digits, exponent)
    numerator = value.numerator
    zeros = (numerator & -numerator).bit_length() - 1
    return f"{hex(numerator >> zeros)}p{zeros - twos}"


def _decimal(value: Fraction, twos: int) -> tuple[str, int]:
    """Return digits without trailing zeros, and the exponent of ten of the first."""
    fives, rest = 0, value.denominator >> twos
    while rest > 1:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    written = str((value * 10**places).numerator)
    digits = written.rstrip("0") or "0"
    return digits, len(written) - 1 - places


def _positional(digits: str, exponent: int) -> str:
    if not -5 <= exponent < 17:
        point = "." if len(digits) > 1 else ""
        return f"{digits[0]}{point}{digits[1:]}e{exponent}"
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{whole}.{fraction}" if fraction else whole
