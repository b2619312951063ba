"""What is audited: an expression, or a function of the reader's, as a candidate for each back end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from kl_audit.backends import Backend, CandidateError
from kl_audit.callee import Binding, Loaded, Probe, candidate, ordinary, probe
from kl_audit.callee.roles import find_role
from kl_audit.errors import UsageError
from kl_audit.expression import Expression
from kl_audit.formats import Format, find_format
from kl_audit.quantities.base import Candidate

#: What a single letter means in a formula of log-probabilities.
LETTERS = {"p": "policy", "r": "reference", "o": "old"}


@dataclass(frozen=True)
class Made:
    """A candidate for one back end and format, and what is known of it."""

    fn: Candidate
    result: Format
    pointwise: bool = False  #: it reduces its input, and is called for one element at a time
    reason: str | None = None  #: why it cannot be judged (it is random, it mixes its elements)
    facts: tuple[str, ...] = ()


class Subject(ABC):
    """One thing to audit."""

    name: str  #: as tables call it
    text: str  #: as the reader gave it
    file: str | None = None
    line: int | None = None

    @abstractmethod
    def made(self, backend: Backend, fmt: Format, points: int) -> Made:
        """Return the candidate; raises Unavailable or CandidateError with the reason why not."""


@dataclass
class ExpressionSubject(Subject):
    """A formula given as text."""

    expression: Expression
    inputs: tuple[str, ...]  #: the quantity's
    names: dict[str, str]  #: input -> the expression's name for it
    constants: dict[str, float]
    name: str = "expr"

    def __post_init__(self) -> None:
        self.text = self.expression.text

    def candidate(self) -> Candidate:
        """Return the expression as ``fn(xp, *inputs)``."""
        expression = self.expression.bind(self.constants)
        order = [self.names.get(i) for i in self.inputs]

        def evaluate(xp: Any, *inputs: Any) -> Any:
            env = {n: x for n, x in zip(order, inputs, strict=True) if n is not None}
            return expression(xp, **env)

        return evaluate

    def made(self, backend: Backend, fmt: Format, points: int) -> Made:
        """See ``Subject.made``."""
        fn = self.candidate()
        columns = ordinary(self.inputs, fmt)
        result, _ = backend.array_evaluator(fn, backend.modes[0].name, "cpu")(*columns)
        if result.shape != columns[0].shape:
            raise CandidateError(f"returned shape {result.shape}, expected {columns[0].shape}")
        return Made(fn, find_format(result.dtype.name))


def match_names(
    expression: Expression, inputs: tuple[str, ...], args: str | None, constants: dict[str, Any]
) -> ExpressionSubject:
    """Match an expression's names to a quantity's inputs and to constants; raises UsageError."""
    names: dict[str, str] = {}
    for entry in (e.strip() for e in (args or "").split(",") if e.strip()):
        role, _, name = (part.strip() for part in entry.partition("="))
        found = find_role(role, inputs)
        if found is None:
            have = ", ".join(inputs)
            raise UsageError(f"--args: '{role}' is no input of the quantity, which takes {have}.")
        names[found] = name or role
    unknown = [n for n in (*names.values(), *constants) if n not in expression.names]
    if unknown:
        have = ", ".join(expression.names)
        raise UsageError(f"expression: there is no '{unknown[0]}' in it; its names are {have}.")
    free = [n for n in expression.names if n not in names.values() and n not in constants]
    for name in list(free):
        left = tuple(i for i in inputs if i not in names)
        role_of = find_role(LETTERS.get(name, name), left)
        if role_of is not None and role_of in left:
            names[role_of] = name
            free.remove(name)
    if len(free) == 1 and len(inputs) == 1 and not names:
        names[inputs[0]] = free.pop()
    if free:
        raise UsageError(
            f"expression: '{free[0]}' is none of the inputs ({', '.join(inputs)}); map it with "
            f"--args {inputs[0]}={free[0]}, or give it a value with --with {free[0]}=VALUE."
        )
    for name, value in constants.items():
        if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
            raise UsageError(f"--with {name}={value}: expected a number in an expression.")
    return ExpressionSubject(expression, inputs, names, {n: float(c) for n, c in constants.items()})


@dataclass
class CallableSubject(Subject):
    """A function of the reader's."""

    loaded: Loaded
    binding: Binding
    output: str | None
    _probes: dict[tuple[str, str], Probe] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = self.loaded.short
        self.text = f"{self.loaded.name} ({self.binding})"
        self.file, self.line = self.loaded.file, self.loaded.line

    def made(self, backend: Backend, fmt: Format, points: int) -> Made:
        """See ``Subject.made``: probes once for each back end and format."""
        key = (backend.name, fmt.name)
        if key not in self._probes:
            self._probes[key] = probe(
                self.loaded, self.binding, backend, lambda b, columns: b.arrays(columns), self.output,
                fmt, points=points,
            )  # fmt: skip
        found = self._probes[key]
        fn = candidate(self.loaded, self.binding, found.output, found.plan)
        facts = tuple(f.text for f in found.facts if f.flag not in ("accepts", "format", "shape"))
        return Made(
            fn, find_format(found.result_format), found.plan.pointwise, found.reason,
            (*self.loaded.notes, *self.binding.notes, *facts),
        )  # fmt: skip
