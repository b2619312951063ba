"""A case is run: each part in each back end and mode, and its cures under the same conditions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from kl_audit.audit.cases import Truths
from kl_audit.audit.tried import Problem
from kl_audit.backends import BACKENDS, Backend, CandidateError, Unavailable
from kl_audit.cases import blame, measures
from kl_audit.cases.criterion import (
    Truth,
    expected_outcome,
    in_format,
    is_reported,
    is_right,
    parse_criterion,
)
from kl_audit.cases.inputs import given
from kl_audit.cases.model import Case, Part
from kl_audit.cases.rows import Cured, Row
from kl_audit.cases.subject import candidate_of, formula_of, problem_of
from kl_audit.errors import OracleError, UsageError
from kl_audit.formats import Float64Array, Format, find_format
from kl_audit.oracle.exact import decimal
from kl_audit.quantities.base import Candidate
from kl_audit.quantities.vector_base import Case as Inputs

#: The gradient is shown beside the value of at most this many entries.
FEW = 64


@dataclass(frozen=True)
class Settings:
    """Where cases are to run; empty: where each says."""

    backends: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    allow_import: bool = False
    device: str = "cpu"

    def targets(self, part: Part) -> list[tuple[Backend, str]]:
        """Return back ends and modes of a part, as far as they are asked for."""
        found = []
        for name in part.backends:
            if self.backends and name not in self.backends:
                continue
            have = [m.name for m in BACKENDS[name].modes]
            asked = have if "all" in self.modes else [m for m in self.modes or part.modes if m in have]
            found += [(BACKENDS[name], mode) for mode in asked]
        return found


@dataclass
class Setup:
    """What the rows of a part share."""

    part: Part
    fmt: Format
    inputs: Inputs
    dtypes: dict[str, Format]
    problem: Problem
    truths: Truths
    own: Truths | None
    wrt: str
    eager: dict[str, Float64Array] = field(default_factory=dict)  #: by back end
    #: true elements, each by intervals once: of thousands of inputs that takes a second
    printed: dict[tuple[Any, ...], Truth] = field(default_factory=dict)


def setup(part: Part) -> Setup:
    """Prepare a part; raises UsageError."""
    fmt = find_format(part.dtype)
    found = given(part.inputs)
    problem = problem_of(part)
    wrt = part.wrt or problem.real[0]
    values = found.case(fmt)
    small = all(np.size(values.inputs[n]) <= FEW for n in problem.real)
    slopes = (wrt,) if part.output == "gradient" or small else ()  # of thousands of entries it takes seconds
    problem = replace(problem, wrt=slopes)
    own = formula_of(part)
    return Setup(
        part, fmt, values, found.dtypes, problem, Truths(problem, fmt),
        None if own is None else Truths(replace(own, wrt=slopes), fmt), wrt,
    )  # fmt: skip


def run_case(
    case: Case, settings: Settings, tick: Callable[[str], None] = lambda what: None
) -> Iterator[Row]:
    """Yield the rows of a case."""
    for part in case.part:
        yield from _run_part(case, part, settings, tick)


def _run_part(case: Case, part: Part, settings: Settings, tick: Callable[[str], None]) -> Iterator[Row]:
    targets = settings.targets(part)
    if part.needs is not None:
        where = targets[:1] or [(BACKENDS[part.backends[0]], part.modes[0])]
        for backend, mode in where:
            yield Row(case, part, backend.name, mode, expected="skipped", reason=f"needs {part.needs}")
        return
    if not targets:
        asked = ", ".join((*settings.backends, *settings.modes))
        there = f"{', '.join(part.backends)} ({', '.join(part.modes)})"
        yield Row(case, part, part.backends[0], part.modes[0], reason=f"runs on {there}, not on {asked}")
        return
    prepared = setup(part)
    for backend, mode in targets:
        tick(f"{case.id}: {part.name}, {backend.name}-{mode}")
        yield run_row(case, prepared, backend, mode, settings)


def run_row(
    case: Case, prepared: Setup, backend: Backend, mode: str, settings: Settings, own: Candidate | None = None
) -> Row:
    """Return one row; ``own`` stands in for what the part computes with."""
    part = prepared.part
    row = Row(case, part, backend.name, mode)
    try:
        row.versions = backend.versions()
        if mode in part.modes or not settings.modes:
            row.expected = expected_outcome(part.expected, backend.name, mode, row.versions.get(backend.name))
        fn = own or candidate_of(part, part, settings.allow_import)
        with quietly():
            _measure(row, prepared, backend, fn, settings)
            if own is None and row.outcome == "reproduced":
                row.cures = [_cured(row, prepared, backend, cure, settings) for cure in part.cure]
    except Unavailable as reason:
        row.outcome, row.reason = "skipped", str(reason)
    except CandidateError as error:
        row.outcome, row.reason = "changed", str(error)
    except OracleError as error:
        row.outcome, row.reason, row.code = "changed", f"no certified truth: {error}", "KLA901"
    return row


class quietly(warnings.catch_warnings):  # noqa: N801 - it is used as a statement
    """Without the warnings of frameworks: the overflows that they tell of are what is looked at."""

    def __enter__(self) -> Any:
        """Turn them off, NumPy's own too."""
        found = super().__enter__()
        warnings.simplefilter("ignore")
        return found


def _arrays(prepared: Setup) -> list[Any]:
    p, inputs = prepared.problem, prepared.inputs.inputs
    return [
        prepared.dtypes.get(n, prepared.fmt).cast(inputs[n]) if n in p.real else np.asarray(inputs[n])
        for n in p.inputs
    ]


def _wide(array: Any) -> Float64Array:
    return np.ravel(np.asarray(array)).astype(np.float64)


def _value(prepared: Setup, backend: Backend, mode: str, fn: Candidate, device: str) -> Any:
    value, _ = backend.array_evaluator(fn, mode, device, ())(*_arrays(prepared))
    return value


def _gradient(prepared: Setup, backend: Backend, mode: str, fn: Candidate, device: str) -> Any:
    if not backend.differentiates:
        raise Unavailable(f"{backend.name} has no automatic differentiation")
    number = prepared.problem.inputs.index(prepared.wrt)
    _, (slope,) = backend.array_evaluator(fn, mode, device, (number,))(*_arrays(prepared))
    return slope


def _measure(row: Row, prepared: Setup, backend: Backend, fn: Candidate, settings: Settings) -> None:
    """Evaluate, and settle the outcome of a row; raises Unavailable, CandidateError, OracleError."""
    part = prepared.part
    value = _value(prepared, backend, row.mode, fn, settings.device)
    result = find_format(value.dtype.name)
    slope = None
    if part.output == "gradient":
        slope = _gradient(prepared, backend, row.mode, fn, settings.device)
    elif prepared.problem.wrt and row.mode != "compile":
        try:
            slope = _gradient(prepared, backend, row.mode, fn, settings.device)
        except (Unavailable, CandidateError):
            slope = None  # it is shown beside the value, where there is one
    got = _wide(value if part.output == "value" else slope)
    row.seen, row.truth = _number(prepared, backend, fn, got, result, row.mode, settings)
    kept = result if part.output == "value" else prepared.fmt
    truth = in_format(row.truth, kept)
    _both(row, prepared, value, slope, result)
    reported = None if part.reported is None else str(part.reported)
    row.error = measures.error_of(part.measure, row.seen, truth)
    row.as_reported = None if reported is None else is_reported(row.seen, reported)
    if part.right is not None:
        row.right_holds = is_right(row.truth, str(part.right))
        if not row.right_holds:
            row.reason = (
                f"the case says that {part.right} is right, the certified truth is {shown(row.truth)}"
            )
    if parse_criterion(part.reproduced_when).holds(row.seen, truth, reported):
        row.outcome = "reproduced"
    elif row.error is not None and row.error <= part.tolerance:
        row.outcome = "fixed"
    else:
        row.outcome = "changed"
    blame.settle(row, _own(prepared, got, result))


def _number(
    prepared: Setup, backend: Backend, fn: Candidate, got: Float64Array, result: Format, mode: str,
    settings: Settings,
) -> tuple[float, Truth]:  # fmt: skip
    """Return the number that the part is about, and the true one."""
    part = prepared.part
    wrt = prepared.wrt if part.output == "gradient" else None
    if part.measure == "result":
        i = measures.pick(got, part.element, part.output)
        return float(got[i]), _printed(prepared.truths, prepared, result, i, wrt, len(got))
    if part.measure == "mode_gap":
        if backend.name not in prepared.eager:
            at = _value if wrt is None else _gradient
            prepared.eager[backend.name] = _wide(at(prepared, backend, "eager", fn, settings.device))
        return measures.mode_gap(got, prepared.eager[backend.name]), 0.0
    value, slopes = prepared.truths.of(prepared.inputs, result)
    exact = value if wrt is None else slopes[wrt]
    if exact is None:
        raise CandidateError("the gradient is undefined there: it is a kink")
    if exact.truth.sum.hi.size != got.size:
        raise CandidateError(f"returned {got.size} elements, expected {exact.truth.sum.hi.size}")
    of_got, of_truth = measures.OF_ALL[part.measure]
    return of_got(got, exact), of_truth(exact)


def _printed(
    truths: Truths, prepared: Setup, result: Format, index: int, wrt: str | None, size: int
) -> Truth:
    """Return one true element, by mpmath intervals; None where it is undefined."""
    value, slopes = truths.of(prepared.inputs, result)
    exact = value if wrt is None else slopes[wrt]
    if exact is None:
        return None
    if exact.truth.sum.hi.size != size:
        raise CandidateError(f"returned {size} elements, expected {exact.truth.sum.hi.size}")
    key = (truths is prepared.own, result.name, index, wrt)
    if key not in prepared.printed:
        found = truths.printed(prepared.inputs, result, index, wrt)
        prepared.printed[key] = None if isinstance(found, float) and math.isnan(found) else found
    return prepared.printed[key]


def _own(prepared: Setup, got: Float64Array, result: Format) -> Truth:
    """Return what the part's own formula gives without rounding, of a part about one element."""
    part = prepared.part
    if part.measure != "result" or part.expr is None:
        return None
    wrt = prepared.wrt if part.output == "gradient" else None
    index = measures.pick(got, part.element, part.output)
    try:
        return _printed(prepared.own or prepared.truths, prepared, result, index, wrt, len(got))
    except (OracleError, CandidateError, UsageError):
        return None


def _both(row: Row, prepared: Setup, value: Any, slope: Any, result: Format) -> None:
    """Fill in value and gradient where each is one number."""
    part = prepared.part
    for name, array, wrt in (("value", value, None), ("gradient", slope, prepared.wrt)):
        if array is None:
            continue
        got = _wide(array)
        element = part.element if part.output == name or got.size > 1 else None
        if part.measure != "result" or (got.size > 1 and element is None) or (element or 0) >= got.size:
            continue
        i = element or 0
        setattr(row, name, float(got[i]))
        try:
            setattr(row, f"{name}_truth", _printed(prepared.truths, prepared, result, i, wrt, got.size))
        except (OracleError, CandidateError):
            setattr(row, name, None)


def _cured(row: Row, prepared: Setup, backend: Backend, cure: Any, settings: Settings) -> Cured:
    """Measure a cure as the part was measured."""
    part = prepared.part
    try:
        fn = candidate_of(cure, part, settings.allow_import)
        at = _value if part.output == "value" else _gradient
        array = at(prepared, backend, row.mode, fn, settings.device)
        result = find_format(array.dtype.name) if part.output == "value" else prepared.fmt
        fresh = replace(prepared, eager={})
        seen, exact = _number(fresh, backend, fn, _wide(array), result, row.mode, settings)
    except (Unavailable, CandidateError, OracleError) as why:
        return Cured(cure, None, None, False, str(why))
    truth = in_format(exact, result)
    error = measures.error_of(part.measure, seen, truth)
    gone = not parse_criterion(part.reproduced_when).holds(
        seen, truth, None if part.reported is None else str(part.reported)
    )
    return Cured(cure, seen, error, gone and error is not None and error <= part.tolerance)


def shown(truth: Truth) -> str:
    """Return a truth in decimal."""
    if truth is None:
        return "undefined"
    return decimal(truth, 17) if isinstance(truth, Fraction) else str(truth)
