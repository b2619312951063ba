"""The audit of a function of vectors: its cases, stock formulations beside it, stalls and remedies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kl_audit.audit.cases import Truths, rows_of, try_out
from kl_audit.audit.compare import Seen
from kl_audit.audit.remedies import Remedy
from kl_audit.audit.stalls import find_stall
from kl_audit.audit.subject import Made, Subject
from kl_audit.audit.thresholds import Threshold
from kl_audit.audit.tried import Problem, Tried
from kl_audit.backends import CandidateError, Unavailable
from kl_audit.checks import Bounds
from kl_audit.formats import Format
from kl_audit.formulations import Formulation
from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors import vector_formulations_of
from kl_audit.quantities.vector_base import Case, VectorQuantity
from kl_audit.sweep import Listener, Target

#: The most cases on which a remedy is measured in a mode that compiles.
FEW = 12


@dataclass(frozen=True)
class VectorTask:
    """One problem and subject, and how they are to be looked at."""

    subject: Subject
    problem: Problem
    vector: VectorQuantity | None  #: None: a formula at given inputs
    cases: dict[str, list[Case]]  #: by name of format
    dtypes: dict[str, Format]
    outputs: tuple[str, ...]
    against: tuple[VectorFormulation, ...]
    targets: tuple[Target, ...]
    formats: tuple[Format, ...]
    bounds: Bounds
    explain: bool = True


@dataclass
class VectorAudited:
    """A row on cases, with what an audit adds."""

    tried: Tried
    mine: bool
    thresholds: list[Threshold] = field(default_factory=list)
    remedy: Remedy | None = None
    facts: tuple[str, ...] = ()


def audit_vectors(task: VectorTask, listener: Listener) -> Iterator[VectorAudited]:
    """Run every case; yields one row for each format, back end, mode and output."""
    for fmt in task.formats:
        truths = Truths(task.problem, fmt)
        seen: Seen = {}
        for target in task.targets:
            try:
                made = task.subject.made(target.backend, fmt, 0)
                if made.reason is not None:
                    raise CandidateError(made.reason)
            except (Unavailable, CandidateError) as error:
                yield from _skipped(task, fmt, target, str(error))
                continue
            yield from _on(task, fmt, target, made, truths, seen, listener)


def _on(
    task: VectorTask,
    fmt: Format,
    target: Target,
    made: Made,
    truths: Truths,
    seen: Seen,
    listener: Listener,
) -> Iterator[VectorAudited]:
    cases = task.cases[fmt.name]
    label = f"{task.problem.name} {fmt.short} {target}"
    listener.start(label, len(cases) * (1 + len(task.against)))
    candidates = [(task.subject.name, made.fn)] + [(f.name, f.fn) for f in task.against]
    tried = [
        try_out(task.problem, name, fn, fmt, target, cases, truths, task.bounds, task.outputs,
                task.dtypes, listener.advance, seen)
        for name, fn in candidates
    ]  # fmt: skip
    listener.finish(label)
    stock: list[tuple[VectorFormulation, list[Tried]]] = []
    for i, row in enumerate(rows_of(tried)):
        mine = i % len(candidates) == 0
        done = VectorAudited(row, mine, facts=made.facts if mine else ())
        if task.explain and mine and task.vector is not None and row.skipped is None:
            if row.output == "value" and row.failed is None:
                stall = find_stall(task.vector, task.problem, made.fn, fmt, target)
                done.thresholds = [stall] if stall else []
            if row.verdict == "fail":
                done.remedy = _remedy(task, row, fmt, target, truths, stock)
        yield done


def _remedy(
    task: VectorTask, row: Tried, fmt: Format, target: Target, truths: Truths,
    known: list[tuple[VectorFormulation, list[Tried]]],
) -> Remedy:  # fmt: skip
    """Return the sound stock formulation that passes on the same cases and target, value and gradient."""
    names = []
    cases = task.cases[fmt.name]
    where = "on these cases"
    if target.compiles and len(cases) > FEW:
        # A compiler works for seconds on each new shape.
        cases = _some(cases, row)
        where = f"on the {len(cases)} of {len(task.cases[fmt.name])} cases tried here"
    sound = [f for f in vector_formulations_of(task.problem.name) if f.sound]
    for f in sorted(sound, key=lambda f: len(f.name)):  # the plainest first
        rows = next((r for g, r in known if g is f), None)
        if rows is None:
            rows = try_out(task.problem, f.name, f.fn, fmt, target, cases, truths,
                           task.bounds, task.outputs, task.dtypes)  # fmt: skip
            known.append((f, rows))
        if all(r.verdict in ("pass", "skipped") for r in rows):
            like = next((r for r in rows if r.output == row.output and r.wrt == row.wrt), rows[0])
            text = f"{f.name} passes {where}: {f.formula}"
            shown = Formulation(f.name, f.quantity, f.fn, f.formula, f.source, None)
            return Remedy(shown, "pass", like.max_ulp, like.max_rel, text, row.max_rel)
        names.append(f.name)
    tried = ", ".join(names) or "none is known"
    return Remedy(None, None, None, None, f"no stock formulation passes {where} ({tried})")


def _some(cases: list[Case], row: Tried) -> list[Case]:
    """Return the first cases of each tag at the two smallest sizes, and the row's worst."""
    sizes = sorted({c.size for c in cases})[:2]
    small = [c for c in cases if c.size in sizes]
    chosen = [c for tag in dict.fromkeys(c.tag for c in small) for c in small if c.tag == tag][:FEW]
    worst = [row.worst.case] if row.worst is not None else []
    return [*chosen, *(c for c in worst if all(c is not x for x in chosen))]


def _skipped(task: VectorTask, fmt: Format, target: Target, reason: str) -> Iterator[VectorAudited]:
    for output in task.outputs:
        for wrt in task.problem.wrt if output == "gradient" else (None,):
            row = Tried(task.problem, task.subject.name, fmt, target, output, wrt)
            row.skipped = row.reason = reason
            row.verdict = "skipped"
            yield VectorAudited(row, True)


def problem_of(vector: VectorQuantity) -> Problem:
    """Return a vector quantity as a problem."""
    return Problem(
        vector.name,
        tuple(i.name for i in vector.inputs),
        tuple(i.name for i in vector.inputs if i.kind == "real"),
        vector.differentiated,
        vector.reference,
        vector.lower,
        vector.upper,
        vector.zero_on_identical,
    )


def cases_of(vector: VectorQuantity, fmt: Format, sizes: tuple[int, ...], seed: int) -> list[Case]:
    """Return the cases of a quantity, for a seed."""
    found = []
    for size in sizes or vector.sizes:
        rng = np.random.default_rng(np.random.SeedSequence((seed, 7, size)))
        found += list(vector.cases(fmt, rng, size))
    return found
