"""Building the tree: every rule about kinds, constants and depth that a formula must keep.

What is built can be evaluated: numbers stand where numbers belong, conditions where conditions do, and
what needs an array (a reduction, a cast, a comparison) has a variable in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from kl_audit.expression.functions import FUNCTIONS, Function
from kl_audit.expression.lexer import ExpressionError, Token
from kl_audit.expression.tree import COMPARISONS, Binary, Call, Negate, Node, Not, Power, Take

#: Deepest nesting of a formula; a sum of n terms is n deep, because it is read from the left.
MAX_DEPTH = 200
#: Largest exponent of a power.
MAX_EXPONENT = 1_024

NUMBER, TRUTH, ANY = "a number", "a condition", "a variable"
_LOGIC = {"&": "and", "|": "or"}


@dataclass(frozen=True)
class Term:
    """A node, and what the rules need to know of it."""

    node: Node
    position: int  #: of its first character
    kind: str = NUMBER  #: NUMBER, TRUTH, or ANY: a free variable may be either
    is_constant: bool = False
    depth: int = 1


class Builder:
    """Makes terms of terms; raises ExpressionError at the place where a rule is broken."""

    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, problem: str, expected: str, position: int) -> NoReturn:
        """Raise ExpressionError."""
        raise ExpressionError(problem, expected, self.text, position)

    def make(self, node: Node, at: Token, parts: list[Term], kind: str = NUMBER, folds: bool = True) -> Term:
        """Return the term of a node above its parts."""
        depth = 1 + max(p.depth for p in parts)
        if depth > MAX_DEPTH:
            self.too_deep(at)
        position = min(at.position, *(p.position for p in parts))
        return Term(node, position, kind, folds and all(p.is_constant for p in parts), depth)

    def too_deep(self, at: Token) -> NoReturn:
        """Refuse what is nested too deeply."""
        self.fail(f"nested deeper than {MAX_DEPTH}", "a smaller formula, or names for its parts", at.position)

    def number(self, term: Term, of: str) -> None:
        """Ask for a number."""
        if term.kind == TRUTH:
            self.fail(f"{of} of a condition", "a number, such as where(condition, 1, 0)", term.position)

    def condition(self, term: Term, of: str) -> None:
        """Ask for something true or false."""
        if term.kind == NUMBER:
            self.fail(f"{of} of a number", "conditions, in parentheses: (a < b) & (c < d)", term.position)

    def array(self, term: Term, of: str) -> None:
        """Ask for something with a variable in it."""
        if term.is_constant:
            self.fail(f"{of} of a constant", "something with a variable in it", term.position)

    def negate(self, at: Token, operand: Term) -> Term:
        """Apply a sign; a plus leaves nothing in the tree."""
        self.number(operand, f"'{at.text}'")
        if at.text == "+":
            return replace(operand, position=at.position)
        return self.make(Negate(operand.node), at, [operand])

    def invert(self, at: Token, operand: Term) -> Term:
        """Apply ``not`` or ``~``."""
        self.condition(operand, f"'{at.text}'")
        return self.make(Not(operand.node), at, [operand], TRUTH)

    def binary(self, at: Token, left: Term, right: Term) -> Term:
        """Apply arithmetic, a comparison, or logic."""
        of, operator = f"'{at.text}'", _LOGIC.get(at.text, at.text)
        node = Binary(operator, left.node, right.node)
        if operator in ("and", "or"):
            self.condition(left, of)
            self.condition(right, of)
            return self.make(node, at, [left, right], TRUTH)
        self.number(left, of)
        self.number(right, of)
        if operator not in COMPARISONS:
            return self.make(node, at, [left, right])
        if left.is_constant:
            self.array(right, of)
        return self.make(node, at, [left, right], TRUTH)

    def power(self, at: Token, base: Term, exponent: int) -> Term:
        """Apply a power."""
        self.number(base, f"'{at.text}'")
        return self.make(Power(base.node, exponent), at, [base])

    def take(self, at: Token, operand: Term, index: int | tuple[int, ...]) -> Term:
        """Apply a subscript."""
        self.number(operand, "a subscript")
        self.array(operand, "a subscript")
        return self.make(Take(operand.node, index), at, [operand])

    def call(self, at: Token, function: Function, given: list[Term | None], axis: int | None) -> Term:
        """Apply a function to as many arguments as it takes."""
        name, parts = function.name, [t for t in given if t is not None]
        for i, term in enumerate(parts):
            if name == "where" and i == 0:
                self.condition(term, "where")
            else:
                self.number(term, name)
            if not function.folds:
                self.array(term, name)
        node = Call(name, tuple(None if t is None else t.node for t in given), axis)
        return self.make(node, at, parts, TRUTH if function.is_truth else NUMBER, name != "where")

    def nested(self, at: Token, name: str, given: list[Term]) -> Term:
        """Apply a function of two arguments to more of them, from the left."""
        result = given[0]
        for term in given[1:]:
            result = self.call(at, FUNCTIONS[name], [result, term], None)
        return result
