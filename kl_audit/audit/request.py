"""From what the reader asks for to a job: the subject, what it ought to compute, and where to look."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kl_audit.audit.at import Given, parse_at
from kl_audit.audit.expressed import quantity_of, reference_of
from kl_audit.audit.home import homes
from kl_audit.audit.log_ratio import Audited, Task, audit
from kl_audit.audit.subject import CallableSubject, ExpressionSubject, Subject, match_names
from kl_audit.audit.tried import Problem
from kl_audit.audit.vector_subject import VectorCallable
from kl_audit.audit.vectors import VectorAudited, VectorTask, audit_vectors, cases_of, problem_of
from kl_audit.backends import CandidateError, Unavailable
from kl_audit.callee import Loaded, bind, load, wants_pair
from kl_audit.callee.literals import parse_constants
from kl_audit.checks import Bounds
from kl_audit.errors import UsageError, unknown
from kl_audit.expression import Expression, parse
from kl_audit.formats import Format
from kl_audit.formulations import find_formulations
from kl_audit.formulations.vectors import vector_formulations_of
from kl_audit.grids import Grid, Points
from kl_audit.quantities import QUANTITIES, Clamp, Quantity
from kl_audit.quantities.vector_base import Case, VectorQuantity
from kl_audit.quantities.vectors import VECTORS
from kl_audit.selection import choose_formats, choose_targets, grid_for
from kl_audit.sweep import Listener, Target


@dataclass(frozen=True)
class Request:
    """What the reader asked for, as text."""

    target: str | None
    expr: str | None = None
    quantity: str | None = None
    truth: str | None = None
    args: str | None = None
    with_: tuple[str, ...] = ()
    output: str | None = None
    at: tuple[str, ...] = ()
    only: str | None = None
    against: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    device: str = "cpu"
    dtypes: tuple[str, ...] = ()
    grid: str | None = None
    per_decade: int | None = None
    sizes: tuple[int, ...] = ()
    clamp: str = "auto"
    max_rel: float | None = 0.01
    max_ulp: float | None = None
    seed: int = 0
    top: int = 5
    explain: bool = True


@dataclass
class Job:
    """An audit that is ready to run."""

    task: Task | VectorTask
    seed: int

    @property
    def subject(self) -> Subject:
        """What is audited."""
        return self.task.subject

    def run(self, listener: Listener) -> Iterator[Audited | VectorAudited]:
        """Yield the rows of the audit as they are finished."""
        if isinstance(self.task, Task):
            yield from audit(self.task, listener)
        else:
            yield from audit_vectors(self.task, listener)


def prepare(r: Request) -> Job:
    """Resolve every name; raises UsageError with one line for whatever does not fit."""
    _check(r)
    constants = parse_constants(list(r.with_))
    expression = parse(r.expr) if r.expr is not None else None
    loaded = load(r.target) if r.target is not None else None
    truth = parse(r.truth) if r.truth is not None else None
    if r.quantity is None and truth is None:
        if expression is None:
            raise UsageError(
                f"what ought {r.target} to compute? Give --quantity ({', '.join(QUANTITIES)}, "
                f"{', '.join(VECTORS)}) or --truth FORMULA."
            )
        truth = expression
    given = parse_at(r.at) if r.at else None
    targets = _targets(r, loaded)
    if truth is not None:
        return _of_truth(r, expression, loaded, truth, given, targets, constants)
    assert r.quantity is not None
    name = r.quantity.lower()
    if name in VECTORS:
        return _of_vector(r, expression, loaded, VECTORS[name], given, targets, constants)
    quantity = _scalar(name, expression, loaded, r.args)
    return _of_scalar(r, expression, loaded, quantity, given, targets, constants)


def _check(r: Request) -> None:
    """Refuse what contradicts itself before anything is loaded."""
    if (r.target is None) == (r.expr is None):
        raise UsageError(
            "give one thing to audit: package.module:function, or a formula with --expr 'exp(d) - d - 1'."
        )
    if r.quantity is not None and r.truth is not None:
        raise UsageError("--quantity and --truth both say what is right; give one of them.")
    if r.only not in (None, "value", "gradient", "all"):
        raise unknown("--only", r.only, ["value", "gradient"])
    for option, limit in (("--max-rel", r.max_rel), ("--max-ulp", r.max_ulp)):
        if limit is not None and not limit >= 0:
            raise UsageError(f"{option} {limit:g}: expected a number, 0 or more.")
    for n in r.sizes:
        if not 1 <= n <= 1_000_000:
            raise UsageError(f"--size {n}: expected 1 to 1000000 entries.")
    if r.at and (r.grid is not None or r.per_decade is not None):
        raise UsageError("--at gives the inputs, and --grid would too; give one of them.")


def _outputs(r: Request) -> tuple[str, ...]:
    return ("value", "gradient") if r.only in (None, "all") else (r.only,)


def _targets(r: Request, loaded: Loaded | None) -> tuple[Target, ...]:
    """Return where to run: as told, or for a function the framework that it uses."""
    backends = list(r.backends)
    if not backends and loaded is not None:
        backends = homes(loaded)
    return choose_targets(backends, list(r.modes), r.device)


def _scalar(name: str, expression: Expression | None, loaded: Loaded | None, args: str | None) -> Quantity:
    """Find a quantity of the log-ratio; k3 of a function of two log-probabilities is k3-pair."""
    if name not in QUANTITIES:
        raise unknown("quantity", name, [*QUANTITIES, *VECTORS])
    pair = f"{name}-pair"
    if pair in QUANTITIES:
        if loaded is not None and wants_pair(loaded, args):
            name = pair
        elif expression is not None and args is None and len(expression.names) > 1:
            subject = _try_names(expression, QUANTITIES[pair].inputs)
            name = pair if subject else name
    return QUANTITIES[name]


def _try_names(expression: Expression, inputs: tuple[str, ...]) -> bool:
    try:
        match_names(expression, inputs, None, dict.fromkeys((), 0.0))
    except UsageError:
        return False
    return True


def _subject(
    r: Request, expression: Expression | None, loaded: Loaded | None, inputs: tuple[str, ...],
    constants: dict[str, Any],
) -> ExpressionSubject | CallableSubject:  # fmt: skip
    if expression is not None:
        if r.output is not None:
            raise UsageError("--output selects a part of what a function returns; a formula has one result.")
        return match_names(expression, inputs, r.args, constants)
    assert loaded is not None
    return CallableSubject(loaded, bind(loaded, inputs, r.args, list(r.with_)), r.output)


def _of_scalar(
    r: Request, expression: Expression | None, loaded: Loaded | None, quantity: Quantity,
    given: Given | None, targets: tuple[Target, ...], constants: dict[str, Any],
) -> Job:  # fmt: skip
    subject = _subject(r, expression, loaded, quantity.inputs, constants)
    formats = choose_formats(r.dtypes)
    if given is not None and not _finite(given):
        q = quantity
        problem = Problem(
            q.name, q.inputs, q.inputs, q.inputs,
            lambda ops, **env: q.value.reference(ops, *(env[i] for i in q.inputs)),
        )  # fmt: skip
        return _at_vectors(r, subject, problem, given, targets, formats)
    grids: dict[str, Grid] = {}
    for fmt in formats:
        grids[fmt.name] = (
            _points(given, quantity) if given else grid_for(r.grid, r.per_decade, fmt, len(quantity.inputs))
        )
    against = tuple(find_formulations(quantity, list(r.against))) if r.against else ()
    task = Task(
        subject, quantity, _outputs(r), against, _callable_on(subject, targets, formats), grids, formats,
        Bounds(r.max_ulp, r.max_rel), _clamp(r.clamp), r.seed, r.top, r.explain,
    )  # fmt: skip
    return Job(task, r.seed)


def _finite(given: Given) -> bool:
    lengths = {len(v) for v in given.real.values()}
    values = (x for v in given.real.values() for x in v)
    return not given.other and len(lengths) == 1 and all(math.isfinite(x) for x in values)


def _points(given: Given, quantity: Quantity) -> Points:
    """Return the given inputs as a grid; raises UsageError where they are not the quantity's."""
    _same_inputs(given, quantity.name, quantity.inputs)
    if given.dtypes:
        name = next(iter(given.dtypes))
        raise UsageError(
            f"--at {name}:{given.dtypes[name].short}: all inputs of {quantity.name} share --dtype."
        )
    rows = tuple(zip(*(given.real[i] for i in quantity.inputs), strict=True))
    return Points(rows, "--at")


def _same_inputs(given: Given, name: str, inputs: tuple[str, ...]) -> None:
    have = {*given.real, *given.other}
    if have != set(inputs):
        wrong = sorted(have - set(inputs)) or sorted(set(inputs) - have)
        word = "is no input" if have - set(inputs) else "is missing"
        raise UsageError(f"--at: '{wrong[0]}' {word}; {name} takes {', '.join(inputs)}.")


def _of_truth(
    r: Request, expression: Expression | None, loaded: Loaded | None, truth: Expression,
    given: Given | None, targets: tuple[Target, ...], constants: dict[str, Any],
) -> Job:  # fmt: skip
    """Audit against a formula in exact arithmetic."""
    in_truth = {n: float(c) for n, c in constants.items() if n in truth.names and isinstance(c, int | float)}
    names = tuple(n for n in truth.names if n not in in_truth)
    formats = choose_formats(r.dtypes)
    whole = expression is None or expression.elementwise
    if truth.elementwise and whole and (given is None or (_finite(given) and not given.dtypes)):
        quantity = quantity_of(truth, in_truth)
        roles = {"policy", "reference", "old"}
        if given is None and len(names) > 1 and not set(names) <= roles:
            example = " ".join(f"--at {n}=1" for n in names)
            raise UsageError(f"the formula has {len(names)} inputs, and no grid is known for them: "
                             f"give values with {example}.")  # fmt: skip
        return _of_scalar(r, expression, loaded, quantity, given, targets, constants)
    if given is None:
        example = " ".join(f"--at {n}=1,0.5" for n in names)
        raise UsageError(f"the formula is one of vectors, and no grid is known for them: give {example}.")
    inputs = tuple(n for n in (*given.real, *given.other))
    _same_inputs(given, "the formula", names) if set(inputs) != set(names) else None
    real = tuple(given.real)
    problem = Problem("expression", inputs, real, real, reference_of(truth, in_truth))
    if expression is not None:
        subject: Subject = match_names(expression, inputs, r.args, constants)
    else:
        assert loaded is not None
        subject = _vector_callable(r, loaded, problem, given.case(formats[0]))
    return _at_vectors(r, subject, problem, given, targets, formats)


def _at_vectors(
    r: Request, subject: Subject, problem: Problem, given: Given, targets: tuple[Target, ...],
    formats: tuple[Format, ...],
) -> Job:  # fmt: skip
    _same_inputs(given, problem.name, problem.inputs)
    if r.against:
        raise UsageError("--against needs a --quantity: it names a stock formulation of one.")
    if isinstance(subject, ExpressionSubject):
        subject = _as_given(subject)
    task = VectorTask(
        subject, problem, None, {f.name: [given.case(f)] for f in formats}, given.dtypes, _outputs(r), (),
        _callable_on(subject, targets, formats), formats, Bounds(r.max_ulp, r.max_rel), r.explain,
    )  # fmt: skip
    return Job(task, r.seed)


def _as_given(subject: ExpressionSubject) -> Subject:
    """Return a formula as a subject whose result may have any shape."""
    from kl_audit.audit.vector_subject import Plain  # noqa: PLC0415

    return Plain(subject.candidate(), subject.name, subject.text)


def _of_vector(
    r: Request, expression: Expression | None, loaded: Loaded | None, vector: VectorQuantity,
    given: Given | None, targets: tuple[Target, ...], constants: dict[str, Any],
) -> Job:  # fmt: skip
    """Audit against a quantity of vectors, on its own cases or on given inputs."""
    problem = problem_of(vector)
    formats = choose_formats(r.dtypes)
    if given is not None:
        _same_inputs(given, vector.name, problem.inputs)
        cases: dict[str, list[Case]] = {f.name: [given.case(f)] for f in formats}
    else:
        cases = {f.name: cases_of(vector, f, r.sizes, r.seed) for f in formats}
    if expression is not None:
        subject = _as_given(match_names(expression, problem.inputs, r.args, constants))
    else:
        assert loaded is not None
        subject = _vector_callable(r, loaded, problem, cases[formats[0].name][0])
    known = {f.name: f for f in vector_formulations_of(vector.name)}
    for name in r.against:
        if name not in (*known, "all"):
            raise unknown(f"formulation of {vector.name}", name, list(known))
    against = tuple(f for f in known.values() if "all" in r.against or f.name in r.against)
    task = VectorTask(
        subject, problem, vector, cases, given.dtypes if given else {}, _outputs(r), against,
        _callable_on(subject, targets, formats), formats, Bounds(r.max_ulp, r.max_rel), r.explain,
    )  # fmt: skip
    return Job(task, r.seed)


def _vector_callable(r: Request, loaded: Loaded, problem: Problem, case: Case) -> Subject:
    import numpy as np  # noqa: PLC0415

    columns = tuple(np.asarray(case.inputs[n]) for n in problem.inputs)
    binding = bind(loaded, problem.inputs, r.args, list(r.with_))
    return VectorCallable(loaded, binding, r.output, columns, ())


def _callable_on(
    subject: Subject, targets: tuple[Target, ...], formats: tuple[Format, ...]
) -> tuple[Target, ...]:
    """Return the targets; raises UsageError where the subject can be called on none of them."""
    reasons: dict[str, str] = {}
    for backend in dict.fromkeys(t.backend for t in targets):
        try:
            subject.made(backend, formats[0], 0)
        except Unavailable as reason:
            reasons[backend.name] = f"skipped, {reason}"
        except CandidateError as error:
            reasons[backend.name] = str(error)
        else:
            return targets
    if all(text.startswith("skipped, ") for text in reasons.values()):
        return targets  # not the subject's fault: rows with the reason
    told = "; ".join(f"{name}: {text}" for name, text in reasons.items())
    raise UsageError(f"{subject.name} cannot be called. {told}.")


def _clamp(text: str) -> Clamp | str | None:
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
