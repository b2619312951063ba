"""Values: literals, parentheses, names, and calls with their arguments."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from typing import NoReturn

from kl_audit.expression.functions import (
    AXIS_KEYWORDS,
    CONSTANTS,
    LIMIT_KEYWORDS,
    PREFIXES,
    Function,
    default_axis,
    find_function,
    function_names,
)
from kl_audit.expression.lexer import Token, brief, tokenise
from kl_audit.expression.terms import ANY, Builder, Term
from kl_audit.expression.tree import Constant, Name, Number

#: Names that are no variables; None stands for a limit or an axis that is left out.
PYTHON_VALUES = frozenset({"None", "True", "False"})
#: The reductions that are elementwise when they have two arguments or more.
_PAIRWISE = {"min": "minimum", "max": "maximum"}


class CallParser(Builder):
    """Reads single values; what is between them is for ``expression``."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.tokens = tokenise(text)
        self.index = 0
        self.scope: dict[str, Term] = {}  #: what was assigned so far
        self.names: list[str] = []  #: free variables in order of first appearance
        self.unused: dict[str, Token] = {}

    @abstractmethod
    def expression(self, floor: int = 0) -> Term:
        """Read an expression."""

    # --- tokens ------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        """The token that is read next."""
        return self.tokens[self.index]

    def peek(self) -> Token:
        """The token after the next."""
        return self.tokens[min(self.index + 1, len(self.tokens) - 1)]

    def advance(self) -> Token:
        """Take the next token; the end stays."""
        token = self.token
        self.index = min(self.index + 1, len(self.tokens) - 1)
        return token

    def close(self, bracket: str) -> None:
        """Take a closing bracket."""
        if self.token.text != bracket:
            self.fail_unexpected()
        self.advance()

    def sign(self) -> int:
        """Take signs, and return their product."""
        sign = 1
        while self.token.text in ("-", "+"):
            sign = -sign if self.advance().text == "-" else sign
        return sign

    def integer(self, what: str) -> int:
        """Take an integer literal with its sign."""
        start, sign = self.token, self.sign()
        if self.token.kind != "number" or self.token.value.denominator != 1 or self.token.value >= 2**31:
            self.fail(f"{what} that is not an integer", "an integer literal such as -1", start.position)
        return sign * self.advance().value.numerator

    def fail_unexpected(self) -> NoReturn:
        """Refuse the next token, where something had ended."""
        token = self.token
        if token.text == "=":
            self.fail("'=' inside an expression", "'==' to compare", token.position)
        if token.text == ".":
            self.fail_attribute()
        self.fail(f"unexpected {brief(token.text)}", "an operator before it", token.position)

    def fail_attribute(self) -> NoReturn:
        """Refuse ``x.name`` and ``x.name(...)``."""
        dot, name = self.advance(), self.advance()
        if name.kind != "name":
            self.fail("a stray '.'", "a number such as 0.5, or a function such as torch.exp(x)", dot.position)
        if self.token.text == "(":
            self.fail(f"a call of the method {brief(name.text)}", "a function: f(x), not x.f()", dot.position)
        self.fail(f"access to the attribute {brief(name.text)}", "a name without '.'", dot.position)

    # --- values ------------------------------------------------------------------------------

    def value(self) -> Term:
        """Read a literal, a parenthesis, a name or a call."""
        token = self.token
        if token.kind == "number":
            self.advance()
            return Term(Number(token.value), token.position, is_constant=True)
        if token.kind == "name":
            return self.reference()
        if token.text == "(" and self.peek().text != ")":
            self.advance()
            term = self.expression()
            self.close(")")
            return term
        return self.fail_missing(token)

    def fail_missing(self, token: Token) -> NoReturn:
        """Say that a value is missing here."""
        before = self.tokens[self.index - 1] if self.index else None
        if token.text == "(":
            self.fail("empty parentheses", "a value inside them", token.position)
        if token.text == "[":
            self.fail("a list without an array", "a subscript after an array: x[[1, 2]]", token.position)
        if before is not None and before.kind == "op" and before.text not in ")]":
            self.fail(f"nothing follows {brief(before.text)}", "a value after it", before.position)
        self.fail(f"unexpected {brief(token.text)}", "a value", token.position)

    def reference(self) -> Term:
        """Read a variable, a constant or a call, with a module before it or without."""
        start = self.index
        last = self.advance()
        modules = []
        while self.token.text == "." and self.peek().kind == "name":
            modules.append(last.text)
            self.advance()
            last = self.advance()
        if modules and ".".join(modules) not in PREFIXES:
            self.index = start + 1
            self.fail_attribute()
        at = self.tokens[start]
        if last.text in CONSTANTS:
            return Term(Constant(last.text), at.position, is_constant=True)
        function = find_function(last.text)
        if function is not None and self.token.text == "(":
            return self.arguments(at, function)
        if function is not None:
            self.fail(f"the function {brief(last.text)} is not called", function.signature, last.position)
        if modules or self.token.text == "(":
            self.fail_function(last)
        if last.text in PYTHON_VALUES:
            self.fail(f"{last.text} is no value", "a number, a name or a call", last.position)
        return self.variable(last)

    def variable(self, token: Token) -> Term:
        """Refer to what was assigned, or to a free variable."""
        name = token.text
        self.unused.pop(name, None)
        if name in self.scope:
            known = self.scope[name]
            return Term(Name(name), token.position, known.kind, known.is_constant)
        if name not in self.names:
            self.names.append(name)
        return Term(Name(name), token.position, ANY)

    def fail_function(self, token: Token) -> NoReturn:
        """Refuse a function that is not known; close names are suggested."""
        names = function_names()
        close = [f"'{n}'" for n in difflib.get_close_matches(token.text[:40], names, 3, 0.6)]
        meant = f" (did you mean {' or '.join(close)}?)" if close else ""
        self.fail(
            f"unknown function {brief(token.text)}{meant}", f"one of {', '.join(names)}", token.position
        )

    # --- arguments ---------------------------------------------------------------------------

    def arguments(self, at: Token, function: Function) -> Term:
        """Read the arguments of a call and make the call."""
        self.advance()
        given: list[Term | None] = []
        named: dict[int, Term | None] = {}
        axis: list[int | None] = []
        while self.token.text != ")":
            is_named = self.token.kind == "name" and self.peek().text == "="
            if (named or axis) and not is_named:
                self.fail(
                    "an argument without a name after one with it", function.signature, self.token.position
                )
            if is_named:
                self.named_argument(function, named, axis)
            elif function.along and len(given) == 1 and function.name not in _PAIRWISE:
                axis.append(self.axis(function))
            else:
                given.append(self.argument(function, len(given)))
            if self.token.text != ",":
                break
            self.advance()
        self.close(")")
        if len(axis) > 1:
            self.fail(f"{function.name} with two axes", function.signature, at.position)
        if function.name == "clip":
            return self.clip(at, function, given, named)
        terms = [t for t in given if t is not None]
        if function.name in _PAIRWISE and len(terms) > 1:
            if axis:
                self.fail(
                    f"{function.name} of several arrays along an axis",
                    f"{function.signature}, or {function.name}(a, b)", at.position,
                )  # fmt: skip
            return self.nested(at, _PAIRWISE[function.name], terms)
        if len(terms) != function.arity:
            self.fail_arity(at, function, len(terms))
        whole = default_axis(function.name) if function.along else None
        return self.call(at, function, given, axis[0] if axis else whole)

    def fail_arity(self, at: Token, function: Function, count: int) -> NoReturn:
        """Refuse a call by the number of its arguments."""
        plural = "argument" if count == 1 else "arguments"
        self.fail(f"{function.name} with {count} {plural}", function.signature, at.position)

    def argument(self, function: Function, place: int) -> Term | None:
        """Read one argument; the limits of clip alone may be None."""
        if self.token.text == "None" and function.name == "clip" and place > 0:
            self.advance()
            return None
        return self.expression()

    def named_argument(
        self, function: Function, named: dict[int, Term | None], axis: list[int | None]
    ) -> None:
        """Read ``name=value``."""
        keyword = self.advance()
        self.advance()
        if function.along and keyword.text in AXIS_KEYWORDS:
            axis.append(self.axis(function))
            return
        if function.name == "clip" and keyword.text in LIMIT_KEYWORDS:
            place = LIMIT_KEYWORDS[keyword.text]
            if place in named:
                self.fail("a limit of clip given twice", function.signature, keyword.position)
            named[place] = self.argument(function, 1 + place)
            return
        known = (
            "axis= or dim=" if function.along else "min= or max=" if function.name == "clip" else "no keyword"
        )
        self.fail(
            f"unknown keyword {brief(keyword.text)} of {function.name}", f"{known} ('==' compares)",
            keyword.position,
        )  # fmt: skip

    def axis(self, function: Function) -> int | None:
        """Read an axis."""
        if self.token.text == "None" and function.whole:
            self.advance()
            return None
        return self.integer("an axis")

    def clip(
        self, at: Token, function: Function, given: list[Term | None], named: dict[int, Term | None]
    ) -> Term:
        """Make a clip of its limits, by place or by name."""
        if not 1 <= len(given) <= 3:
            self.fail_arity(at, function, len(given) + len(named))
        limits = [*given[1:], None, None][:2]
        for place, term in named.items():
            if place < len(given) - 1:
                self.fail("a limit of clip given twice", function.signature, at.position)
            limits[place] = term
        if limits == [None, None]:
            self.fail("clip without a limit", function.signature, at.position)
        return self.call(at, function, [given[0], *limits], None)
