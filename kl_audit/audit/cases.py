"""The audit of a function of vectors on cases: value and gradients against exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from kl_audit.audit.compare import Seen, add_gradient, add_value, compare_modes
from kl_audit.audit.tried import Problem, Tried
from kl_audit.backends import CandidateError, EvaluateArrays, Unavailable
from kl_audit.checks import Bounds
from kl_audit.errors import OracleError
from kl_audit.formats import Float64Array, FloatArray, Format, find_format, hex_float
from kl_audit.ftz import flushing
from kl_audit.oracle.certified import Output, Scale, evaluate, recompute
from kl_audit.quantities.base import Candidate
from kl_audit.quantities.vector_base import Case
from kl_audit.sweep import Target

#: Cases of more entries than this are not recomputed by intervals: it would take seconds.
CONFIRMED = 20_000
#: The exact outputs of larger cases are not all kept.
KEPT = 20_000


class Truths:
    """The exact outputs of cases, each computed once for a result format."""

    def __init__(self, problem: Problem, fmt: Format) -> None:
        self.problem = problem
        self.fmt = fmt
        self._known: dict[tuple[int, str], tuple[Output, dict[str, Output | None]]] = {}

    def of(self, case: Case, result: Format) -> tuple[Output, dict[str, Output | None]]:
        """Return (value, gradients by input); a gradient is None at a kink.  Raises OracleError."""
        key = (id(case), result.name)
        if key not in self._known:
            if _entries(self.problem, case) > KEPT:
                self._forget()
            real, constants = split(self.problem, case)
            exact = evaluate(
                self.problem.reference, real, self.problem.wrt, result, self.fmt,
                "element" if self.problem.elementwise else "norm", constants=constants,
            )  # fmt: skip
            self._known[key] = (exact.value, exact.gradients)
        return self._known[key]

    def _forget(self) -> None:
        """Drop the outputs of large cases: 150,000 entries are 30 MB, and only the last is needed."""
        outputs = {k: [value, *gradients.values()] for k, (value, gradients) in self._known.items()}
        for key, parts in outputs.items():
            if any(part is not None and len(part.truth.sum.hi) > KEPT for part in parts):
                del self._known[key]

    def printed(self, case: Case, result: Format, index: int, wrt: str | None) -> Fraction | float:
        """Return one element by mpmath intervals; raises OracleError."""
        real, constants = split(self.problem, case)
        fmt = result if wrt is None else self.fmt
        scale: Scale = "element" if self.problem.elementwise else "norm"
        (value,) = recompute(self.problem.reference, real, [index], fmt, wrt, scale, constants)
        return value


def _entries(problem: Problem, case: Case) -> int:
    return sum(np.size(case.inputs[n]) for n in problem.real)


def split(problem: Problem, case: Case) -> tuple[dict[str, Float64Array], dict[str, Any]]:
    """Return the real inputs of a case, and the others (indices, masks)."""
    real = {n: np.asarray(case.inputs[n], dtype=np.float64) for n in problem.real}
    return real, {n: v for n, v in case.inputs.items() if n not in problem.real}


def try_out(
    problem: Problem, name: str, fn: Candidate, fmt: Format, target: Target, cases: list[Case],
    truths: Truths, bounds: Bounds, outputs: tuple[str, ...], dtypes: dict[str, Format],
    tick: Callable[[str], None] = lambda what: None, seen: Seen | None = None,
) -> list[Tried]:  # fmt: skip
    """Run a candidate on every case; return one row for the value and one for each gradient.

    ``dtypes`` gives inputs that are not in ``fmt``.  ``seen`` holds what the first mode of a back end
    gave, and is compared with.
    """
    rows = [Tried(problem, name, fmt, target, "value", None)] if "value" in outputs else []
    wrt = problem.wrt if "gradient" in outputs else ()
    gradients = {w: Tried(problem, name, fmt, target, "gradient", w) for w in wrt}
    if wrt and not target.backend.differentiates:
        for row in gradients.values():
            row.verdict, row.skipped = "skipped", f"{target.backend.name} has no automatic differentiation"
            row.reason = row.skipped
        wrt = ()
    everyone = [*rows, *gradients.values()]
    live = [r for r in everyone if r.skipped is None]
    try:
        numbers = tuple(problem.inputs.index(w) for w in wrt)
        run = target.backend.array_evaluator(fn, target.mode, target.device, numbers)
    except (Unavailable, CandidateError) as error:
        _stop(live, error)
        return everyone
    for case in cases:
        tick(f"{name} {target}")
        try:
            value, slopes = _run(run, problem, case, fmt, dtypes)
            result = find_format(value.dtype.name)
            exact, exact_slopes = truths.of(case, result)
            for row in rows:
                if row.result is not result:
                    probe = flushing(target.backend, target.mode, target.device, result)
                    row.result, row.flushes = result, probe.results
                add_value(row, case, value, exact, result)
                compare_modes(row, case, value, exact, seen)
        except (Unavailable, CandidateError, OracleError) as error:
            _stop(live, error, case)
            break
        for w, slope in zip(wrt, slopes, strict=True):
            add_gradient(gradients[w], case, slope, exact_slopes[w], exact.truth.undefined)
    for row in live:
        _judge(row, bounds, truths)
    return everyone


def _run(
    run: EvaluateArrays, problem: Problem, case: Case, fmt: Format, dtypes: dict[str, Format]
) -> tuple[FloatArray, list[FloatArray]]:
    arrays = [
        dtypes.get(n, fmt).cast(case.inputs[n]) if n in problem.real else np.asarray(case.inputs[n])
        for n in problem.inputs
    ]
    return run(*arrays)


def _stop(rows: list[Tried], error: Exception, case: Case | None = None) -> None:
    where = f" ({case.name})" if case is not None and case.name else ""
    for row in rows:
        if isinstance(error, Unavailable):
            row.skipped = row.reason = str(error)
            row.verdict = "skipped"
            continue
        row.failed = row.reason = f"{error}{where}"
        row.verdict = "fail"
        code = "KLA901" if isinstance(error, OracleError) else "KLA200"
        row.add(code, row.failed, "error", None)


def _judge(row: Tried, bounds: Bounds, truths: Truths) -> None:
    """Hold the figures against the bounds and settle the verdict."""
    if row.skipped is not None or row.failed is not None:
        return
    code = "KLA403" if row.output == "gradient" else "KLA001"
    if bounds.max_rel is not None and row.max_rel > bounds.max_rel:
        what = "error relative to the largest entry" if row.output == "gradient" else "relative error"
        row.add(code, f"{what} {row.max_rel:.3g} > {bounds.max_rel:g}", "error", row.worst)
    if bounds.max_ulp is not None and row.output == "value" and row.max_ulp > bounds.max_ulp:
        row.add(code, f"{row.max_ulp:.3g} ulp > {bounds.max_ulp:g}", "error", row.worst)
    if row.mode_worst is not None:
        gap, mode, there, at = row.mode_worst
        text = (
            f"differs from {row.target.backend.name}-{mode} in {row.mode_cases} of {row.cases} cases, by "
            f"up to {gap:.3g} relative ({hex_float(there)} there)"
        )
        row.add("KLA106", text, "note", at)
    _confirm(row, truths)
    codes = [f.code for f in row.findings.values() if f.level == "error"]
    if codes:
        row.verdict, row.reason = "fail", "; ".join(codes)
    elif not row.cases:
        row.verdict, row.reason = "vacuous", "no case was measured"
    elif row.undefined >= row.points:
        what = "gradient" if row.output == "gradient" else "value"
        row.verdict, row.reason = "vacuous", f"no {what} is defined at these inputs"


def _confirm(row: Tried, truths: Truths) -> None:
    """Recompute the worst element by mpmath intervals; a disagreement is a finding."""
    w = row.worst
    if w is None or w.truth is None or (row.result is None and row.output == "value"):
        return
    if _entries(row.problem, w.case) > CONFIRMED:
        return
    try:
        again = truths.printed(w.case, row.result or row.fmt, w.index, row.wrt)
    except OracleError as error:
        row.add("KLA901", str(error), "error", w)
        return
    if isinstance(again, float) or isinstance(w.truth, float):
        same = again == w.truth
    else:
        scale = Fraction(row.scale) if row.output == "gradient" else abs(again)
        same = abs(again - w.truth) <= scale * Fraction(1, 2**50) or _tiny(again, w.truth)
    if not same:
        row.add("KLA902", "the two oracles disagree", "error", w)


def _tiny(a: Fraction, b: Fraction) -> bool:
    """Whether both are too small for any format to tell from 0."""
    return max(abs(a), abs(b)) < Fraction(1, 2**1100)


def rows_of(tried: list[list[Tried]]) -> Iterator[Tried]:
    """Yield the rows of several candidates, grouped by output, in order."""
    for rows in zip(*tried, strict=True):
        yield from rows
