"""From tokens to terms: precedence climbing, with Python's precedences and ``^`` as a power."""

from __future__ import annotations

from dataclasses import replace

from kl_audit.expression.calls import PYTHON_VALUES, CallParser
from kl_audit.expression.functions import CONSTANTS, find_function
from kl_audit.expression.lexer import Token, brief
from kl_audit.expression.terms import MAX_DEPTH, MAX_EXPONENT, Term
from kl_audit.expression.tree import COMPARE, COMPARISONS, PRECEDENCE, Node

_SIGNS = ("-", "+", "~")
_POWERS = ("**", "^")


class Parser(CallParser):
    """Reads one text, by recursive descent: statements, expressions, operands."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0

    # --- statements --------------------------------------------------------------------------

    def statements(self) -> tuple[list[tuple[str, Node]], Node]:
        """Read assignments and the final expression; raises ExpressionError."""
        assignments: list[tuple[str, Node]] = []
        self.skip_separators()
        if self.token.kind == "end":
            self.fail("empty text", "a formula such as exp(d) - d - 1", 0)
        while self.token.kind == "name" and self.peek().text == "=":
            assignments.append(self.assignment())
        start = self.token
        body = self.expression()
        self.end_of_statement()
        if self.token.kind != "end":
            self.fail(
                "a statement before the last that assigns nothing", "'name = ...', or one formula alone",
                start.position,
            )  # fmt: skip
        for name, token in self.unused.items():
            self.fail_unused(name, token)
        if not self.names:
            self.fail("no variable, so nothing to audit", "a name such as x or d", 0)
        return assignments, body.node

    def assignment(self) -> tuple[str, Node]:
        """Read ``name = expression`` and what separates it from the next statement."""
        target, equals = self.advance(), self.advance()
        name = target.text
        if find_function(name) or name in CONSTANTS or name in PYTHON_VALUES:
            what = "function" if find_function(name) else "constant"
            self.fail(f"assignment to the {what} '{name}'", "another name", target.position)
        value = self.expression()
        self.end_of_statement()
        if self.token.kind == "end":
            self.fail(
                f"{brief(name)} is assigned and nothing follows",
                "a final formula after it, or '==' to compare", equals.position,
            )  # fmt: skip
        if name in self.unused:
            self.fail_unused(name, self.unused[name])
        self.unused[name] = target
        self.scope[name] = replace(value, depth=1)
        return name, value.node

    def fail_unused(self, name: str, token: Token) -> None:
        """Refuse an assignment that nothing reads."""
        self.fail(
            f"{brief(name)} is assigned but never used", "a use of it, or no assignment", token.position
        )

    def skip_separators(self) -> None:
        """Skip semicolons and newlines."""
        while self.token.text == ";":
            self.advance()

    def end_of_statement(self) -> None:
        """Ask for a separator or the end."""
        if self.token.kind != "end" and self.token.text != ";":
            self.fail_unexpected()
        self.skip_separators()

    # --- expressions -------------------------------------------------------------------------

    def expression(self, floor: int = 0) -> Term:
        """Read operands joined by operators that bind at least as tightly as ``floor``."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.too_deep(self.token)
        left = self.negation(floor) if self.token.text == "not" else self.operand()
        while self.token.kind == "op" and PRECEDENCE.get(self.token.text, -1) >= floor:
            if self.token.text == "not":
                break
            operator = self.advance()
            right = self.expression(PRECEDENCE[operator.text] + 1)
            if PRECEDENCE[operator.text] == COMPARE and self.token.text in COMPARISONS:
                self.fail("a chained comparison", "one at a time: (a < b) & (b < c)", self.token.position)
            left = self.binary(operator, left, right)
        self.depth -= 1
        return left

    def negation(self, floor: int) -> Term:
        """Read ``not expression``."""
        binds = PRECEDENCE["not"]
        if floor > binds:
            self.fail("'not' inside an operator that binds tighter", "(not ...)", self.token.position)
        operator = self.advance()
        return self.invert(operator, self.expression(binds))

    def operand(self) -> Term:
        """Read signs, a value with its subscripts, and a power."""
        signs = []
        while self.token.text in _SIGNS:
            signs.append(self.advance())
        term = self.value()
        while self.token.text == "[":
            term = self.subscript(term)
        if self.token.text == ".":
            self.fail_attribute()
        if self.token.text in _POWERS:
            at = self.token
            term = self.power(at, term, self.exponent())
        for sign in reversed(signs):
            term = self.invert(sign, term) if sign.text == "~" else self.negate(sign, term)
        return term

    def exponent(self) -> int:
        """Read a tower of integer exponents, which is evaluated from the right."""
        tower: list[tuple[int, int]] = []
        start = self.peek()
        while self.token.text in _POWERS:
            self.advance()
            sign = self.sign()
            bracketed = self.token.text == "("
            if bracketed:
                self.advance()
            inner = self.sign()
            written = self.token
            if written.kind != "number" or written.value.denominator != 1:
                hint = " (sqrt(x) is the square root)" if written.kind == "number" else ""
                self.fail("an exponent that is not an integer", f"an integer literal{hint}", written.position)
            self.advance()
            if bracketed:
                self.close(")")
            tower.append((sign, inner * written.value.numerator))
        result = 1
        for sign, base in reversed(tower):
            too_large = abs(base) > MAX_EXPONENT or (abs(base) > 1 and result > 10)
            if too_large or result < 0:
                self.fail_exponent(start)
            result = sign * base**result
        if abs(result) > MAX_EXPONENT:
            self.fail_exponent(start)
        return result

    def fail_exponent(self, start: Token) -> None:
        """Refuse an exponent by its size."""
        self.fail(
            "an exponent that is no small integer",
            f"one from -{MAX_EXPONENT} to {MAX_EXPONENT}",
            start.position,
        )

    def subscript(self, term: Term) -> Term:
        """Read ``[3]``, ``[1, 2]`` or ``[[1, 2]]``."""
        at = self.advance()
        nested = self.token.text == "["
        if nested:
            self.advance()
        index = [self.integer("an index")]
        while self.token.text == ",":
            self.advance()
            if self.token.text == "]":
                break
            index.append(self.integer("an index"))
        is_list = nested or len(index) > 1
        self.close("]")
        if nested:
            self.close("]")
        return self.take(at, term, tuple(index) if is_list else index[0])
