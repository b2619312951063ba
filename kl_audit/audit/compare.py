"""Results on one case held against the exact ones: figures and findings of a row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kl_audit.audit.tried import CaseWitness, Tried
from kl_audit.backends import CandidateError
from kl_audit.formats import Float64Array, FloatArray, Format
from kl_audit.oracle.certified import Output
from kl_audit.oracle.truth import BoolArray
from kl_audit.quantities.vector_base import Case

#: A gradient whose cosine with the true one is below this points elsewhere.
LEAST_COSINE = 0.99
#: (candidate, back end, device, case) -> (the first mode, its value).
Seen = dict[tuple[str, str, str, int], tuple[str, FloatArray]]
#: A direction is compared where the largest entry is this many smallest numbers of the format.
FINE = 64


def add_value(row: Tried, case: Case, value: FloatArray, exact: Output, result: Format) -> None:
    """Take in the value at one case; raises CandidateError where its size is wrong."""
    got = np.ravel(value).astype(np.float64)
    if len(got) != len(exact.truth.sum.hi):
        raise CandidateError(f"returned shape {value.shape}, expected {exact.shape}")
    row.cases += 1
    row.points += len(got)
    truth = exact.truth
    hi = truth.sum.hi
    defined = ~truth.undefined
    row.undefined += int(np.count_nonzero(~defined))
    nan = np.isnan(got) & defined
    wrong_inf = defined & ~nan & (
        (np.isinf(got) != truth.infinite) | (truth.infinite & (np.sign(got) != np.sign(hi)))
    )  # fmt: skip
    nothing = defined & truth.rounds_to_zero  # no error is relative to 0
    judged = defined & np.isfinite(got) & ~truth.infinite & ~nothing
    ulps, rel = truth.errors(got)
    ulps, rel = np.where(judged, np.abs(ulps), 0.0), np.where(judged, rel, 0.0)
    normal = truth.exponent >= result.emin
    rel = np.where(normal, rel, 0.0)
    flushed = judged & (got == 0) & ~normal & row.flushes
    zeros = judged & (got == 0) & ~flushed
    ulps = np.where(flushed, 0.0, ulps)  # a zero for a subnormal number is told, and in no maximum
    beyond = nothing & np.isfinite(got) & (np.abs(got) > 4 * result.smallest)
    row.nan += int(np.count_nonzero(nan))
    row.infinite += int(np.count_nonzero(wrong_inf))
    row.zeros += int(np.count_nonzero(zeros))
    masked = case.tag in ("masked", "all-masked", "shifted")
    for where, code, text in (
        (nan, "KLA108" if masked else "KLA201", f"NaN{_because(case)}"),
        (wrong_inf, "KLA108" if masked else "KLA202", f"finite and infinite confused{_because(case)}"),
        (zeros, "KLA104", "false zero"),
        (beyond, "KLA102", _nonzero(row, case)),
        (flushed, "KLA204", "zero for a subnormal number"),
    ):
        if where.any():
            i = int(np.argmax(where))
            level = "note" if code == "KLA204" else "error"
            row.add(code, text, level, _witness(case, i, got, exact))
    _limits(row, case, got, exact, result)
    row.max_ulp = max(row.max_ulp, float(ulps.max(initial=0.0)))
    if len(rel) and (float(rel.max()) > row.max_rel or row.worst is None):
        i = int(np.argmax(rel))
        row.max_rel = float(rel[i])
        row.worst = _witness(case, i, got, exact, float(ulps[i]))


def compare_modes(row: Tried, case: Case, value: FloatArray, exact: Output, seen: Seen | None) -> None:
    """Compare with the value of the back end's first mode, bit for bit but for nan."""
    if seen is None:
        return
    key = (row.name, row.target.backend.name, row.target.device, id(case))
    mode, first = seen.setdefault(key, (row.target.mode, value))
    if mode == row.target.mode or first.shape != value.shape or first.dtype != value.dtype:
        return
    here, there = (np.ravel(x).astype(np.float64) for x in (value, first))
    differs = (here != there) & ~(np.isnan(here) & np.isnan(there))
    if not differs.any():
        return
    row.mode_cases += 1
    with np.errstate(invalid="ignore"):
        gap = np.nan_to_num(np.abs(here - there) / np.abs(there), nan=np.inf, posinf=np.inf)
    gap = np.where(differs, gap, -1.0)
    i = int(np.argmax(gap))
    if row.mode_worst is None or gap[i] > row.mode_worst[0]:
        row.mode_worst = (float(gap[i]), mode, float(there[i]), _witness(case, i, here, exact))


def _nonzero(row: Tried, case: Case) -> str:
    identical = row.problem.zero_on_identical and case.tag == "identical"
    return "not 0 on identical inputs" if identical else "not 0 where the truth is 0,"


def _because(case: Case) -> str:
    return {"masked": " because of what masked slots hold", "all-masked": " where all is masked",
            "shifted": " after a shift that changes nothing"}.get(case.tag, "")  # fmt: skip


def _limits(row: Tried, case: Case, got: Float64Array, exact: Output, result: Format) -> None:
    """Hold results against what the quantity can be: 0 at least, log V at most, 0 on identical inputs."""
    problem = row.problem
    low, high = problem.lower(case), problem.upper(case)
    for i, x in enumerate(got.tolist()):
        if low is not None and x < low:
            row.negatives += 1
            text = "negative" if low == 0 else f"below the least possible, {low:.6g},"
            row.add("KLA101", text, "error", _witness(case, i, got, exact))
        if high is not None and x > float(result.cast([high])[0]) and x - high > 2 * result.u * abs(high):
            text = f"above the greatest possible, {high:.6g},"
            row.add("KLA107", text, "error", _witness(case, i, got, exact))


def add_gradient(
    row: Tried, case: Case, slope: FloatArray, exact: Output | None, valueless: BoolArray
) -> None:
    """Take in one gradient at one case; None where the case is a kink.

    What has no value has no derivative: element by element, or as a whole.
    """
    row.cases += 1
    nowhere = valueless.any() and not row.problem.elementwise
    if exact is None or nowhere or case.tag == "infinite":  # an infinite value has no gradient to compare
        row.undefined += slope.size
        return
    got = np.ravel(slope).astype(np.float64)
    row.points += len(got)
    truth = exact.truth
    with np.errstate(over="ignore"):
        right = np.ldexp(truth.sum.hi + truth.sum.lo, _scale(truth.sum.scale))
    defined = ~truth.undefined & ~truth.infinite
    if row.problem.elementwise:
        defined &= ~valueless
    nan = np.isnan(got) & defined
    infinite = np.isinf(got) & defined
    row.nan += int(np.count_nonzero(nan))
    row.infinite += int(np.count_nonzero(infinite))
    for where, code, text in ((nan, "KLA401", "NaN"), (infinite, "KLA401", "infinite")):
        if where.any():
            i = int(np.argmax(where))
            row.add(code, f"{text}{_because(case)}", "error", _witness(case, i, got, exact))
    good = defined & np.isfinite(got)
    if not good.any():
        return
    size = float(np.abs(right[good]).max())
    if size < row.fmt.smallest_normal:
        # The true gradient vanishes (identical distributions): there is no direction to compare.
        worst = float(np.abs(got[good]).max())
        if worst > 0:
            i = int(np.argmax(np.where(good, np.abs(got), 0)))
            text = f"{worst:.3g} where the true gradient is 0,"
            row.add("KLA405", text, "note", _witness(case, i, got, exact))
        return
    if not np.any(got[good]):
        i = int(np.argmax(np.where(good, np.abs(right), 0)))
        row.zeros += 1
        row.add("KLA402", "exactly 0 where it must pull,", "error", _witness(case, i, got, exact))
    _direction(row, case, got, right, exact, good, size)


def _direction(
    row: Tried,
    case: Case,
    got: Float64Array,
    right: Float64Array,
    exact: Output,
    good: BoolArray,
    size: float,
) -> None:
    """Judge the entries that are numbers: their errors, and where the whole gradient points."""
    # Entries are rounded to the smallest number of the format at best.
    with np.errstate(invalid="ignore"):
        off = np.where(good, np.abs(got - right), 0.0)
    error = np.maximum(off - row.fmt.smallest, 0.0) / size
    if row.problem.elementwise:
        own = np.where(good & (np.abs(right) >= row.fmt.smallest_normal), np.abs(right), np.inf)
        error = off / own
    coarse = size < FINE * row.fmt.smallest * math.sqrt(len(got))
    directed = good.all() and not coarse and not row.problem.elementwise
    cosine = _cosine(got[good], right[good]) if directed else None
    if cosine is not None and len(got) > 1:
        row.cosine = cosine if row.cosine is None else min(row.cosine, cosine)
        if cosine < LEAST_COSINE and np.any(got):
            i = int(np.argmax(error))
            text = f"cosine {cosine:.7f} with the true gradient"
            row.add("KLA404", text, "error", _witness(case, i, got, exact))
    i = int(np.argmax(error))
    if float(error[i]) > row.max_rel or row.worst is None:
        row.max_rel = float(error[i])
        row.scale = abs(float(right[i])) if row.problem.elementwise else size
        row.worst = _witness(case, i, got, exact)


def _scale(scale: Any) -> Any:
    return 0 if scale is None else scale


def _cosine(a: Float64Array, b: Float64Array) -> float:
    a, b = a / (np.abs(a).max() or 1.0), b / (np.abs(b).max() or 1.0)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms else 0.0


def _witness(
    case: Case, index: int, got: Float64Array, exact: Output, ulp: float | None = None
) -> CaseWitness:
    (truth,) = exact.fractions([index])
    shown = None if isinstance(truth, float) and math.isnan(truth) else truth
    return CaseWitness(case, index, float(got[index]), shown, ulp)
