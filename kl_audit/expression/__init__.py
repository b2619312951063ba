"""Formulas given as text: parsed by a grammar of our own, never by Python, and run on any ``ops``.

    parse("d = ref - policy; exp(d) - d - 1")(ops, ref=..., policy=...)

Literals (decimal, and C99 hexadecimal), the constants pi, e, inf and nan, names, ``+ - * /``, powers with
an integer exponent (``^`` or ``**``), comparisons, ``and or not`` and ``& | ~``, calls, subscripts along the
last axis (``x[3]``, ``x[1, 2]``, ``x[[1, 2]]``), and assignments before the final formula, separated by ``;``
or newlines.  Precedences are those of Python.  ``nan_to_num`` replaces NaN alone, by 0.  Of the names with
several meanings, ``min`` and ``max`` of one array reduce it and of more are elementwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kl_audit.errors import UsageError
from kl_audit.expression.closures import Run
from kl_audit.expression.functions import FUNCTIONS
from kl_audit.expression.lexer import ExpressionError
from kl_audit.expression.lowering import lower
from kl_audit.expression.parser import Parser
from kl_audit.expression.tree import Call, Node, Take, literal, to_text, walk

__all__ = ["Expression", "ExpressionError", "parse"]


@dataclass(frozen=True)
class Expression:
    """A formula; two are equal where their trees are."""

    text: str = field(compare=False)  #: as it was given
    names: tuple[str, ...] = field(compare=False)  #: free variables in order of first appearance
    assignments: tuple[tuple[str, Node], ...]  #: evaluated in order, before the body
    body: Node
    bound: tuple[tuple[str, float], ...] = field(default=(), compare=False)  #: see ``bind``
    _framework: Run = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # lowered here and not when it is called: a tracer should see the result, not the work
        object.__setattr__(self, "_framework", lower(self.assignments, self.body, exact=False))

    @cached_property
    def _exact(self) -> Run:
        return lower(self.assignments, self.body, exact=True)

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions that are called, by canonical name; of two arrays, max is ``maximum``."""
        return frozenset(n.function for n in self._nodes if isinstance(n, Call))

    @cached_property
    def elementwise(self) -> bool:
        """Whether it has no reduction, no function along an axis and no subscript."""
        return not any(isinstance(n, Take) for n in self._nodes) and not any(
            FUNCTIONS[name].along for name in self.functions
        )

    @property
    def _nodes(self) -> list[Node]:
        return [n for root in (*(node for _, node in self.assignments), self.body) for n in walk(root)]

    def __call__(self, ops: Any, /, **variables: Any) -> Any:
        """Return the value on arrays; variables it does not name are ignored.

        ``ops`` has the names of ``backends.base``; where ``ops.exact`` is true, literals are
        ``ops.number(Fraction)`` (``number(float)`` for inf and nan), pi is ``ops.pi()``, and nothing is
        folded in floating point.  Raises UsageError where a variable is missing.
        """
        for name in self.names:
            if name not in variables:
                wanted, got = ", ".join(self.names), ", ".join(variables) or "none"
                raise UsageError(
                    f"expression: no value for '{name}', expected values for {wanted}; got {got}"
                )
        run = self._exact if getattr(ops, "exact", False) is True else self._framework
        return run(ops, variables)

    def bind(self, constants: Mapping[str, float]) -> Expression:
        """Return the expression with numbers for some of its names, as if they were written in it.

        ``clip(x, -c, c)`` is then a clip by numbers and not a maximum and a minimum of arrays.  Raises
        UsageError where no name is left.
        """
        used = tuple((n, c) for n, c in constants.items() if n in self.names)
        names = tuple(n for n in self.names if n not in constants)
        if not names:
            raise UsageError(f"expression: no variable is left of {', '.join(self.names)}.")
        first = tuple((n, literal(c)) for n, c in used)
        return Expression(self.text, names, first + self.assignments, self.body, self.bound + used)

    def __str__(self) -> str:
        """Return normalised text, which parses to the same tree (up to the limit of a text's length)."""
        parts = [f"{name} = {to_text(node)}" for name, node in self.assignments]
        return "; ".join([*parts, to_text(self.body)])

    def __reduce__(self) -> tuple[Any, tuple[str, tuple[tuple[str, float], ...]]]:
        return _again, (self.text, self.bound)


def _again(text: str, bound: tuple[tuple[str, float], ...]) -> Expression:
    return parse(text).bind(dict(bound)) if bound else parse(text)


def parse(text: str) -> Expression:
    """Return the expression that a text says; raises ExpressionError, which shows the place."""
    try:
        parser = Parser(text)
        assignments, body = parser.statements()
        return Expression(text, tuple(parser.names), tuple(assignments), body)
    except RecursionError:
        pass  # called from deep within something else
    raise ExpressionError("nested too deeply", "a smaller formula, or names for its parts", text, 0)
