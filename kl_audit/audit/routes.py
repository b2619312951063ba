"""The three kinds of audit: of a quantity of the log-ratio, of a quantity of vectors, of a formula."""

from __future__ import annotations

import math

import numpy as np

from kl_audit.audit.at import Given
from kl_audit.audit.expressed import quantity_of, reference_of
from kl_audit.audit.infinite import problem_at_infinity
from kl_audit.audit.job import Asked, Job
from kl_audit.audit.log_ratio import Task, clamp_of
from kl_audit.audit.subject import LETTERS, CallableSubject, ExpressionSubject, Subject, match_names
from kl_audit.audit.tried import Problem
from kl_audit.audit.vector_subject import Plain, VectorCallable
from kl_audit.audit.vectors import VectorTask, cases_of, problem_of
from kl_audit.backends import CandidateError, Unavailable
from kl_audit.callee import bind
from kl_audit.callee.roles import find_role
from kl_audit.errors import UsageError, unknown
from kl_audit.expression import Expression
from kl_audit.formulations import find_formulations
from kl_audit.formulations.vectors import vector_formulations_of
from kl_audit.grids import Grid, Points
from kl_audit.quantities import Clamp, Quantity
from kl_audit.quantities.vector_base import Case, VectorQuantity
from kl_audit.selection import grid_for
from kl_audit.sweep import Target

#: Formulas of these inputs alone have a grid: that of the log-ratio.
ROLES = {"policy", "reference", "old"}


def of_scalar(asked: Asked, quantity: Quantity) -> Job:
    """Audit against a quantity of the log-ratio, on a grid or at given inputs."""
    r, given = asked.request, asked.given
    subject = _subject(asked, quantity.inputs)
    if given is not None:
        own = subject.names if isinstance(subject, ExpressionSubject) else {}
        given = _named(given, quantity.name, quantity.inputs, own)
    if r.sizes:
        raise UsageError(f"--size is for quantities of vectors; {quantity.name} has a grid (--grid).")
    if given is not None and not _finite(given):
        if r.against:
            raise UsageError("--against compares at finite inputs; leave out the infinite ones of --at.")
        return _at_infinity(asked, subject, quantity, given)
    grids: dict[str, Grid] = {
        fmt.name: _points(given, quantity) if given
        else grid_for(r.grid, r.per_decade, fmt, len(quantity.inputs))
        for fmt in asked.formats
    }  # fmt: skip
    against = tuple(find_formulations(quantity, list(r.against))) if r.against else ()
    task = Task(
        subject, quantity, asked.outputs, against, _callable_on(subject, asked), grids, asked.formats,
        asked.bounds, parse_clamp(r.clamp), r.seed, r.top, r.explain,
    )  # fmt: skip
    return Job(task, r.seed)


def _at_infinity(asked: Asked, subject: Subject, quantity: Quantity, given: Given) -> Job:
    """Audit a quantity of the log-ratio as a formula on arrays, which may be infinite."""
    if len({len(v) for v in given.real.values()}) > 1 or given.other:
        raise UsageError(f"--at: {quantity.name} takes as many values of each input, and numbers only.")
    problem = problem_at_infinity(quantity, _clamp(asked, subject, quantity))
    return _at_vectors(asked, subject, problem, given)


def _clamp(asked: Asked, subject: Subject, quantity: Quantity) -> Clamp | None:
    """Return the clamp told, or found where the subject can be called first."""
    setting = parse_clamp(asked.request.clamp)
    for target in asked.targets:
        try:
            made = subject.made(target.backend, asked.formats[0], 0)
            return clamp_of(setting, quantity, made, target, asked.formats[0])
        except (Unavailable, CandidateError):
            continue
    return setting if isinstance(setting, Clamp) else None


def of_vector(asked: Asked, vector: VectorQuantity) -> Job:
    """Audit against a quantity of vectors, on its own cases or on given inputs."""
    r, given = asked.request, asked.given
    if r.grid is not None or r.per_decade is not None:
        raise UsageError(f"--grid is for quantities of the log-ratio; {vector.name} runs on cases (--size).")
    if r.clamp != "auto":
        raise UsageError(f"--clamp is for quantities of the log-ratio, not for {vector.name}.")
    if r.sizes and given is not None:
        raise UsageError("--at gives the inputs, and --size would too; give one of them.")
    problem = problem_of(vector)
    given = None if given is None else _named(given, vector.name, problem.inputs)
    cases: dict[str, list[Case]] = {}
    for fmt in asked.formats:
        if given is None:
            cases[fmt.name] = cases_of(vector, fmt, r.sizes, r.seed)
        else:
            cases[fmt.name] = [given.case(fmt)]
    known = {f.name: f for f in vector_formulations_of(vector.name)}
    for name in r.against:
        if name not in (*known, "all"):
            raise unknown(f"formulation of {vector.name}", name, list(known))
    against = tuple(f for f in known.values() if "all" in r.against or f.name in r.against)
    subject = _vector_subject(asked, problem, cases[asked.formats[0].name][0])
    task = VectorTask(
        subject, problem, vector, cases, given.dtypes if given else {}, asked.outputs, against,
        _callable_on(subject, asked), asked.formats, asked.bounds, r.explain,
    )  # fmt: skip
    return Job(task, r.seed)


def of_truth(asked: Asked, truth: Expression) -> Job:
    """Audit against a formula in exact arithmetic: on a grid where there is one, or at given inputs."""
    given = asked.given
    constants = {
        n: float(c) for n, c in asked.constants.items() if n in truth.names and isinstance(c, int | float)
    }
    names = tuple(n for n in truth.names if n not in constants)
    elementwise = truth.elementwise and (asked.expression is None or asked.expression.elementwise)
    if elementwise and (given is None or not (given.dtypes or given.other or _uneven(given))):
        if given is None and len(names) > 1 and not set(names) <= ROLES:
            example = " ".join(f"--at {n}=1" for n in names)
            raise UsageError(f"the formula has {len(names)} inputs, and no grid is known for them: "
                             f"give values with {example}.")  # fmt: skip
        _no_stock(asked)
        return of_scalar(asked, quantity_of(truth, constants))
    _no_stock(asked)
    if given is None:
        example = " ".join(f"--at {n}=1,0.5" for n in names)
        raise UsageError(f"the formula is one of vectors, and no grid is known for them: give {example}.")
    given = _named(given, "the formula", names)
    inputs = (*given.real, *given.other)
    real = tuple(given.real)
    problem = Problem("expression", inputs, real, real, reference_of(truth, constants))
    subject = _vector_subject(asked, problem, given.case(asked.formats[0]))
    return _at_vectors(asked, subject, problem, given)


def _no_stock(asked: Asked) -> None:
    """Refuse what is known of stock quantities only."""
    if asked.request.against:
        raise UsageError("--against needs a --quantity: it names a stock formulation of one.")
    if asked.request.clamp not in ("auto", "none"):
        raise UsageError("--clamp needs a --quantity: in a formula, clip(...) says the same.")


def _at_vectors(asked: Asked, subject: Subject, problem: Problem, given: Given) -> Job:
    if isinstance(subject, ExpressionSubject):
        subject = _plain(subject)
    task = VectorTask(
        subject, problem, None, {f.name: [given.case(f)] for f in asked.formats}, given.dtypes,
        asked.outputs, (), _callable_on(subject, asked), asked.formats, asked.bounds,
        asked.request.explain,
    )  # fmt: skip
    return Job(task, asked.request.seed)


def _subject(asked: Asked, inputs: tuple[str, ...]) -> ExpressionSubject | CallableSubject:
    """Return the subject of an elementwise audit."""
    r = asked.request
    if asked.expression is not None:
        if r.output is not None:
            raise UsageError("--output selects a part of what a function returns; a formula has one result.")
        return match_names(asked.expression, inputs, r.args, asked.constants)
    assert asked.loaded is not None
    return CallableSubject(asked.loaded, bind(asked.loaded, inputs, r.args, list(r.with_)), r.output)


def _vector_subject(asked: Asked, problem: Problem, case: Case) -> Subject:
    """Return the subject of an audit of vectors; a function is tried on the case."""
    r = asked.request
    if asked.expression is not None:
        return _plain(match_names(asked.expression, problem.inputs, r.args, asked.constants))
    assert asked.loaded is not None
    columns = tuple(np.asarray(case.inputs[n]) for n in problem.inputs)
    binding = bind(asked.loaded, problem.inputs, r.args, list(r.with_))
    return VectorCallable(asked.loaded, binding, r.output, columns, ())


def _plain(subject: ExpressionSubject) -> Subject:
    """Return a formula as a subject whose result may have any shape."""
    return Plain(subject.candidate(), subject.name, subject.text)


def _finite(given: Given) -> bool:
    lengths = {len(v) for v in given.real.values()}
    values = (x for v in given.real.values() for x in v)
    return not given.other and len(lengths) == 1 and all(math.isfinite(x) for x in values)


def _uneven(given: Given) -> bool:
    return len({len(v) for v in given.real.values()}) > 1


def _points(given: Given, quantity: Quantity) -> Points:
    """Return the given inputs as a grid; raises UsageError where they are not the quantity's."""
    if given.dtypes:
        name, own = next(iter(given.dtypes.items()))
        raise UsageError(f"--at {name}:{own.short}: all inputs of {quantity.name} share --dtype.")
    rows = tuple(zip(*(given.real[i] for i in quantity.inputs), strict=True))
    return Points(rows, "--at")


def _named(given: Given, name: str, inputs: tuple[str, ...], own: dict[str, str] | None = None) -> Given:
    """Return the inputs by the quantity's names, from its aliases or the formula's ``own`` names.

    Raises UsageError where one is missing or too many.
    """
    names = {theirs: mine for mine, theirs in (own or {}).items()}
    for key in (*given.real, *given.other):
        role = find_role(LETTERS.get(key, key), tuple(i for i in inputs if i not in names.values()))
        if key not in inputs and key not in names and role is not None:
            names[key] = role
    given = given.renamed(names)
    have = {*given.real, *given.other}
    if have != set(inputs):
        wrong = sorted(have - set(inputs)) or sorted(set(inputs) - have)
        word = "is no input" if have - set(inputs) else "is missing"
        raise UsageError(f"--at: '{wrong[0]}' {word}; {name} takes {', '.join(inputs)}.")
    return given


def _callable_on(subject: Subject, asked: Asked) -> tuple[Target, ...]:
    """Return the targets; raises UsageError where the subject can be called on none of them."""
    reasons: dict[str, str] = {}
    for backend in dict.fromkeys(t.backend for t in asked.targets):
        try:
            subject.made(backend, asked.formats[0], 0)
        except Unavailable as reason:
            reasons[backend.name] = f"skipped, {reason}"
        except CandidateError as error:
            reasons[backend.name] = str(error)
        else:
            return asked.targets
    if all(text.startswith("skipped, ") for text in reasons.values()):
        return asked.targets  # not the subject's fault: rows with the reason
    told = "; ".join(f"{name}: {text}" for name, text in reasons.items())
    raise UsageError(f"{subject.name} cannot be called. {told}.")


def parse_clamp(text: str) -> Clamp | str | None:
    """Parse ``auto``, ``none``, ``in:-20,20`` or ``out:-10,10``; raises UsageError."""
    if text == "auto":
        return text
    if text == "none":
        return None
    kind, _, limits = text.partition(":")
    try:
        low, high = (float(x) for x in limits.split(","))
    except ValueError:
        low = high = math.nan
    if kind not in ("in", "out") or not low < high:
        raise UsageError(f"--clamp '{text}': expected auto, none, in:LO,HI or out:LO,HI with LO < HI.")
    return Clamp(input=(low, high)) if kind == "in" else Clamp(output=(low, high))
