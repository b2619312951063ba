"""The audit of a function of the log-ratio or of log-probabilities, element by element, on a grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from kl_audit.audit.clamps import infer_clamp
from kl_audit.audit.pointwise import Pointwise
from kl_audit.audit.remedies import Remedy, find_remedy
from kl_audit.audit.rounding import InputRounding, describe, input_rounding
from kl_audit.audit.subject import Made, Subject
from kl_audit.audit.thresholds import Threshold, thresholds
from kl_audit.backends import Backend, CandidateError, Unavailable
from kl_audit.callee import ordinary
from kl_audit.checks import Bounds, judge
from kl_audit.findings import Finding, Judgement, line
from kl_audit.formats import Format
from kl_audit.formulations import Formulation, formulations_for
from kl_audit.grids import Decades, Grid, Points
from kl_audit.measure import Tally
from kl_audit.quantities import Clamp, Quantity
from kl_audit.sweep import Block, Listener, Row, Target, sweep

#: Points in each decade for a function that is called for one element at a time.
POINTWISE_PER_DECADE = 4


@dataclass(frozen=True)
class Task:
    """One quantity and subject, and how they are to be looked at."""

    subject: Subject
    quantity: Quantity
    outputs: tuple[str, ...]
    against: tuple[Formulation, ...]
    targets: tuple[Target, ...]
    grids: dict[str, Grid]  #: by name of format
    formats: tuple[Format, ...]
    bounds: Bounds
    clamp: Clamp | str | None  #: ``auto`` looks for one
    seed: int
    top: int
    explain: bool = True  #: thresholds, input rounding and remedies


@dataclass
class Audited:
    """A row of an audit, judged, with what an audit adds."""

    row: Row
    judgement: Judgement
    mine: bool  #: the reader's own, not a stock formulation beside it
    thresholds: list[Threshold] = field(default_factory=list)
    rounding: list[InputRounding] = field(default_factory=list)
    remedy: Remedy | None = None
    facts: tuple[str, ...] = ()


def audit(task: Task, listener: Listener) -> Iterator[Audited]:
    """Measure and judge; yields one row for each format, output, input, back end and mode."""
    for fmt in task.formats:
        for backend in dict.fromkeys(t.backend for t in task.targets):
            targets = tuple(t for t in task.targets if t.backend is backend)
            yield from _on(task, fmt, backend, targets, listener)


def _on(
    task: Task, fmt: Format, backend: Backend, targets: tuple[Target, ...], listener: Listener
) -> Iterator[Audited]:
    grid = task.grids[fmt.name]
    try:
        made = task.subject.made(backend, fmt, grid.count(fmt))
        if made.reason is not None:
            raise CandidateError(made.reason)
    except (Unavailable, CandidateError) as error:
        yield from _skipped(task, fmt, targets, grid, str(error))
        return
    if made.pointwise:
        one = Pointwise(backend)
        targets = tuple(replace(t, backend=one) for t in targets)
        if isinstance(grid, Decades):
            grid = Decades(min(POINTWISE_PER_DECADE, grid.per_decade))
    mine = Formulation(
        name=task.subject.name, quantity=task.quantity.name, fn=made.fn, formula=task.subject.text,
        source="the reader", law=None, clamp=clamp_of(task.clamp, task.quantity, made, targets[0], fmt),
        result=None if made.result == fmt else made.result,
    )  # fmt: skip
    cured: dict[str, str] = {}
    for output in task.outputs:
        for wrt in range(len(task.quantity.inputs)) if output == "gradient" else (0,):
            block = Block(task.quantity, output, fmt, grid, (mine, *task.against), targets, wrt)
            name = task.quantity.inputs[wrt]
            if name in ("reference", "old") and _detached(block, mine):
                reason = f"the gradient with respect to {name} is 0 everywhere: {name} is detached"
                yield from _skipped(task, fmt, targets, grid, reason, (output,), wrt)
                continue
            for row in sweep([block], task.seed, task.top, listener):
                yield _explained(task, row, made, row.formulation is mine, listener, cured)


def _explained(
    task: Task, row: Row, made: Made, mine: bool, listener: Listener, cured: dict[str, str]
) -> Audited:
    """Judge a row and add what an audit adds; ``cured`` remembers the last remedy of an output."""
    judgement = judge(row, task.bounds)
    done = Audited(row, judgement, mine, facts=made.facts if mine else ())
    measured = mine and row.failed is None and row.skipped is None
    if not (task.explain and measured):
        return done
    given = isinstance(row.block.grid, Points)
    along = len(task.quantity.inputs) == 1 or set(task.quantity.inputs) <= {"policy", "reference", "old"}
    if not made.pointwise and not given and along:
        done.thresholds = thresholds(row)
    if not given:
        done.rounding = input_rounding(row, task.seed)
    phrase = describe(row.block.fmt, done.rounding)
    if phrase is not None:
        judgement.findings.append(Finding("KLA501", "note", line(row, phrase, "KLA501")))
    if judgement.verdict == "fail" and formulations_for(task.quantity):
        output = row.block.output
        done.remedy = find_remedy(
            row, judgement.core_rel, task.bounds, task.seed, listener, cured.get(output)
        )
        if done.remedy.formulation is not None:
            cured[output] = done.remedy.formulation.name
    return done


def clamp_of(
    setting: Clamp | str | None, quantity: Quantity, made: Made, target: Target, fmt: Format
) -> Clamp | None:
    """Return the objective's clamp: as told, or as the results show it in the first mode."""
    if not isinstance(setting, str):
        return setting
    if quantity.base_name not in ("k1", "k2", "k3", "ratio") or "old" in quantity.inputs:
        return None
    if made.pointwise:
        return None
    try:
        evaluate = target.backend.evaluator(made.fn, target.mode, target.device, fmt, result=made.result)
        return infer_clamp(evaluate, quantity, fmt, made.result)
    except (Unavailable, CandidateError):
        return None


def _detached(block: Block, mine: Formulation) -> bool:
    """Whether the gradient by an input is 0 on ordinary values, as one that is detached has it."""
    target = block.targets[0]
    try:
        evaluate = target.backend.evaluator(
            mine.fn, target.mode, target.device, block.fmt, "gradient", block.wrt, mine.result
        )
        slope = evaluate(*ordinary(block.quantity.inputs, block.fmt))
    except (Unavailable, CandidateError):
        return False
    return not np.any(slope.astype(np.float64))


def _skipped(
    task: Task, fmt: Format, targets: tuple[Target, ...], grid: Grid, reason: str,
    outputs: tuple[str, ...] | None = None, wrt: int = 0,
) -> Iterator[Audited]:  # fmt: skip
    """Yield rows that were not measured, each with the reason."""
    empty = Formulation(task.subject.name, task.quantity.name, _nothing, task.subject.text, "", None)
    for output in outputs or task.outputs:
        for target in targets:
            block = Block(task.quantity, output, fmt, grid, (empty,), (target,), wrt)
            tally = Tally(task.quantity, fmt, output, None, task.top)
            row = Row(block, empty, target, task.quantity, None, tally, skipped=reason)
            yield Audited(row, judge(row), True)


def _nothing(xp: object, *inputs: object) -> object:
    raise CandidateError("never called")
