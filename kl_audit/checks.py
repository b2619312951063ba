"""Measurements against bounds: verdicts, and findings with codes.

A row **fails** on any finding of level ``error``.  It is **vacuous** when nothing failed but its law
promises nothing (a bound of 1 or more) somewhere in 1e-6 <= |x| < 1, where trainers' log-ratios are,
and no other bound was asked for.  Else it **passes**.  False zeros and non-monotone neighbours that the
law allows are notes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kl_audit.errors import OracleError
from kl_audit.findings import BandVerdict, Finding, Judgement, LawVerdict, exact_error, expected, line
from kl_audit.formats import Float64Array, hex_float
from kl_audit.formulations.laws import Law
from kl_audit.grids import CORE_HIGH, CORE_LOW
from kl_audit.measure import Band, Count, Peak, Tally, Witness
from kl_audit.oracle.exact import Undefined
from kl_audit.quantities import QUANTITIES
from kl_audit.sweep import Row
from kl_audit.ulp import round_to_format

#: How far a bulk error may be from the exact one, in ulp, before it is a finding: twenty times what
#: the bulk oracle's bound, 2**-46 relative, allows in float32; and the rounding of a large error.
ORACLE_ULP, ORACLE_RELATIVE = 1e-5, 1e-12


@dataclass(frozen=True)
class Bounds:
    """What was asked for beyond the laws; None asks for nothing."""

    max_ulp: float | None = None
    max_rel: float | None = None  #: over |x| >= 1e-6 where the truth is a normal number

    def __bool__(self) -> bool:
        """Whether anything was asked for."""
        return self.max_ulp is not None or self.max_rel is not None


def judge(row: Row, bounds: Bounds | float | None = None) -> Judgement:
    """Return the verdict on a row, its findings, and its figures recomputed exactly.

    A plain number is a bound in ulp.
    """
    if not isinstance(bounds, Bounds):
        bounds = Bounds(bounds)
    out = Judgement()
    if row.skipped is not None:
        out.verdict, out.reason = "skipped", row.skipped
        return out
    if row.failed is not None:
        code = "KLA901" if row.oracle_failed else "KLA200"
        out.verdict, out.reason = "fail", row.failed
        out.findings.append(Finding(code, "error", line(row, row.failed, code)))
        return out
    try:
        _recompute(row, out)
        _law(row, out, bounds)
        _bound(row, out, bounds)
        _counts(row, out, bounds)
        _specials(row, out)
    except OracleError as error:
        _add(row, out, "KLA901", str(error), None)
    _lengths(row, out)
    _modes(row, out)
    _bias(row, out)
    errors = [f for f in out.findings if f.level == "error"]
    if errors:
        out.verdict = "fail"
        out.reason = "; ".join(dict.fromkeys(f.code for f in errors))
    else:
        out.verdict, out.reason = _unfailed(row, out, bounds)
    return out


def _add(
    row: Row, out: Judgement, code: str, text: str, witness: Witness | None, level: str = "error"
) -> None:
    out.findings.append(Finding(code, level, line(row, text, code, witness), witness))


def _recompute(row: Row, out: Judgement) -> None:
    """Replace the printed figures by exact ones; a disagreement with the bulk oracle is a finding."""
    worst = []
    for size, witness in row.tally.worst:
        exact = exact_error(row, witness)
        flushed = row.tally.flushes and witness.got == 0 and size == 0
        if exact is None or (flushed and exact[0] > 0):  # of a short list, which is kept whole
            out.unjudged.append(witness)
            continue
        worst.append((exact[0], witness))
        if not math.isclose(exact[0], size, rel_tol=ORACLE_RELATIVE, abs_tol=ORACLE_ULP):
            text = f"bulk oracle says {size:.6g} ulp, exact oracle {exact[0]:.6g}"
            _add(row, out, "KLA902", text, witness)
    worst.sort(key=lambda w: -w[0])
    out.worst = worst
    out.max_ulp = worst[0][0] if worst else 0.0
    out.max_rel = _recomputed_peak(row, out, row.tally.max_rel)
    out.core_rel = _recomputed_peak(row, out, row.tally.core_rel)
    for count in (row.tally.negatives, row.tally.false_zeros, row.tally.nonfinite):
        _confirm(row, out, count)


def _recomputed_peak(row: Row, out: Judgement, peak: Peak) -> float:
    """Return a peak of the relative error by the exact oracle."""
    exact = exact_error(row, peak.at) if peak.at is not None and peak.value else None
    if exact is None:
        return 0.0
    allowed = ORACLE_ULP * row.result.u
    if not math.isclose(exact[1], peak.value, rel_tol=ORACLE_RELATIVE, abs_tol=allowed):
        text = f"bulk oracle says relative error {peak.value:.6g}, exact oracle {exact[1]:.6g}"
        _add(row, out, "KLA902", text, peak.at)
    return exact[1]


def _confirm(row: Row, out: Judgement, count: Count) -> None:
    """Check the first witness of a count against the exact oracle's rounding."""
    if count.first is None:
        return
    try:
        want = round_to_format(row.truth_at(count.first.inputs), row.result)
    except Undefined:
        return
    if want == count.first.got and not (want == 0 and count is row.tally.zero_signs):
        _add(row, out, "KLA902", "counted as wrong, and is right by the exact oracle", count.first)


def _law(row: Row, out: Judgement, bounds: Bounds) -> None:
    law, tally = row.law, row.tally
    bands = list(tally.ordered_bands())
    if law is None:
        out.bands = [_bounded(b, bounds.max_rel) for b in bands]
        return
    out.bands = [_band(row, law, b) for b in bands]
    live = [v.band for v in out.bands if v.verdict != "vacuous"]
    inside = [b for b in live if law.in_ulps or b.hi <= CORE_HIGH]
    failing = [v for v in out.bands if v.verdict == "fail"]
    constant = max((b.constant for b in inside), default=None)
    error = predicted = None
    if row.library is not None and inside:
        error = max(_library_error(row.library, b) for b in inside)
        predicted = law.predicted(error)
    blame = None
    if failing:
        explained = all(_library_explains(row, law, v) for v in failing)
        blame = "library" if explained else "formulation"
        worst = max(failing, key=lambda v: v.ratio or 0.0)
        unit = "ulp" if law.in_ulps else "relative error"
        value, where = worst.band.law_error, f"in [{worst.band.lo:g}, {worst.band.hi:g}), blame {blame},"
        if law.decade_bound(row.block.fmt, worst.band.x_min, worst.band.x_max) is None:
            text = f"{worst.ratio:.4g} times the bound of law {law.name} {where}"
        else:
            text = f"{value:.3g} {unit} > {worst.bound:.3g} by law {law.name} {where}"
        code = "KLA403" if row.block.output == "gradient" else "KLA301"
        _add(row, out, code, text, worst.band.worst)
    pointwise = max((b.pointwise_ratio for b in live), default=None)
    out.law = LawVerdict(law.name, not failing, constant, predicted, error, blame, pointwise)


def _bounded(band: Band, max_rel: float | None) -> BandVerdict:
    """Hold one decade against a bound on the relative error, where no law is stated."""
    if max_rel is None or band.lo < CORE_LOW * 0.999:
        return BandVerdict(band, None, None, "vacuous")
    verdict = "fail" if band.max_rel > max_rel else "pass"
    return BandVerdict(band, max_rel, band.max_rel / max_rel if max_rel else None, verdict)


def _band(row: Row, law: Law, band: Band) -> BandVerdict:
    """Hold one decade against the law: at once below 1, pointwise above."""
    fmt = row.block.fmt
    decade = law.decade_bound(fmt, band.x_min, band.x_max)
    if decade is None:
        bound, ratio = band.pointwise_bound, band.pointwise_ratio
    else:
        bound = decade
        if not law.in_ulps:
            bound += float(row.block.quantity.lift_error(_array(band.x_max))[0]) * fmt.u
        error = band.law_error
        ratio = error / bound if bound > 0 else (0.0 if error == 0 else math.inf)
    if not law.in_ulps and not bound < 1:
        return BandVerdict(band, bound, ratio, "vacuous")
    return BandVerdict(band, bound, ratio, "fail" if ratio > 1 else "pass")


def _array(x: float) -> Float64Array:
    return np.array([x])


def _library_error(library: Tally, band: Band) -> float:
    """Return E over the same decade; where nothing was measured there, over all."""
    for other in library.bands.values():
        if other.lo == band.lo:
            return other.max_ulp
    return library.max_ulp.value


def _library_explains(row: Row, law: Law, verdict: BandVerdict) -> bool:
    """Tell whether the library function's own error, in that decade, accounts for the excess.

    Below 1 the law's factor |x expm1(x)| / k3 is at most 2.4 where the law takes 2, and the last
    rounding adds at most x: C <= 1.2 (predicted) + 1.
    """
    if row.library is None:
        return False
    band = verdict.band
    error = _library_error(row.library, band)
    if error <= 0.5:
        return False
    if law.in_ulps:
        return band.law_error <= 1.2 * law.predicted(error) + 1
    if band.x_max < 1 and band.constant:
        return band.constant <= 1.2 * law.predicted(error) + 1
    return band.pointwise_ratio <= 2.4 * error + 1


def _bound(row: Row, out: Judgement, bounds: Bounds) -> None:
    code = "KLA403" if row.block.output == "gradient" else "KLA001"
    if bounds.max_ulp is not None and out.max_ulp > bounds.max_ulp:
        _add(row, out, code, f"{out.max_ulp:.3g} ulp > {bounds.max_ulp:g}", out.worst[0][1])
    if bounds.max_rel is not None and out.core_rel > bounds.max_rel:
        text = f"relative error {out.core_rel:.3g} > {bounds.max_rel:g}"
        _add(row, out, code, text, row.tally.core_rel.at)


def _counts(row: Row, out: Judgement, bounds: Bounds) -> None:
    tally, n = row.tally, row.tally.points
    false = tally.core_zeros.n if row.law is None and bounds.max_rel is not None else tally.zeros_at_law.n
    gradient = row.block.output == "gradient"

    def told(count: Count, code: str, what: str, level: str = "error") -> None:
        if count.n:
            _add(row, out, code, f"{what} for {count.n:,} of {n:,} inputs, worst", count.worst, level)

    told(tally.negatives, "KLA101", "negative")
    told(tally.not_zero_at_zero, "KLA102", "not 0 at log-ratio 0")
    told(
        tally.nonmonotone, "KLA103", "not monotone",
        "error" if row.formulation.monotone else "note",
    )  # fmt: skip
    told(
        tally.false_zeros, "KLA402" if gradient else "KLA104",
        "exactly 0 where it must pull" if gradient else "false zero",
        "error" if false else "note",
    )  # fmt: skip
    told(tally.nan, "KLA401" if gradient else "KLA201", "NaN")
    told(tally.infinite, "KLA202", "finite and infinite confused")
    told(tally.zero_signs, "KLA203", "zero of the wrong sign", "note")
    told(tally.flushed, "KLA204", "flushed to zero by the back end", "note")


def _specials(row: Row, out: Judgement) -> None:
    """Hold the special values: finite ones as any other, infinite ones against the limits."""
    report = row.lengths
    if report is None:
        return
    flushes = row.flushing is not None and row.flushing.results
    for inputs, got in zip(report.inputs, report.results, strict=True):
        want = expected(row, inputs)
        if want is None:
            continue
        witness = Witness(inputs, got)
        finite = all(math.isfinite(x) for x in inputs)
        same_kind = (
            math.isnan(want) == math.isnan(got)
            and math.isinf(want) == math.isinf(got)
            and (not math.isinf(want) or want == got)
        )
        if not same_kind and finite:
            gradient = row.block.output == "gradient"
            nan = "KLA401" if gradient else "KLA201"
            code = nan if math.isnan(got) else "KLA202"
            _add(row, out, code, "wrong at a special value", witness)
        elif not same_kind:
            _add(row, out, "KLA205", "not the limit", witness, "note")
        elif finite and row.block.output == "value":
            if row.block.quantity.nonnegative and got < 0 and not row.tally.negatives.n:
                _add(row, out, "KLA101", "negative at a special value", witness)
            if want == 0 and got != 0 and row.block.quantity.zero_at_zero and _is_zero(row, inputs):
                _add(row, out, "KLA102", "not 0 at log-ratio 0", witness)
            if flushes and got == 0 and want != 0 and not row.tally.flushed.n:
                _add(row, out, "KLA204", "flushed to zero by the back end", witness, "note")


def _is_zero(row: Row, inputs: tuple[float, ...]) -> bool:
    return float(row.block.quantity.log_ratio(*(_array(x) for x in inputs))[0]) == 0


def _lengths(row: Row, out: Judgement) -> None:
    if row.lengths is None or not row.lengths.differences:
        return
    d = max(
        row.lengths.differences,
        key=lambda d: abs(d.at_length - d.at_vector) if math.isfinite(d.at_length) else -1.0,
    )
    lengths = sorted({x.length for x in row.lengths.differences})
    text = (
        f"{hex_float(d.at_length)} in an array of {d.length}, not as at vector length "
        f"(lengths that differ: {', '.join(map(str, lengths))});"
    )
    _add(row, out, "KLA105", text, Witness(d.inputs, d.at_vector), "note")


def _modes(row: Row, out: Judgement) -> None:
    found = row.modes
    if found is None:
        return
    steps = "nan on one side" if math.isinf(found.steps) else f"up to {found.steps:.3g} steps"
    text = (
        f"differs from {row.target.backend.name}-{found.other} for {found.n:,} of {row.tally.points:,} "
        f"inputs ({steps}; {hex_float(found.there)} there)"
    )
    _add(row, out, "KLA106", text, found.at, "note")


def _bias(row: Row, out: Judgement) -> None:
    """Say how far a clamped objective is from the quantity: not rounding, and by design."""
    clamp = row.formulation.clamp
    if clamp is None:
        return
    base = row.block.quantity.base_name
    low, high = clamp.reach(QUANTITIES[base])
    ends = [f"{sign} {x:.5g}" for sign, x in ((">", high), ("<", low)) if math.isfinite(x)]
    where = f"for log-ratio {' and '.join(ends)}"
    if row.block.output == "value":
        text = f"not rounding: {clamp}, so the objective leaves {base} {where}"
        _add(row, out, "KLA601", text, None, "note")
    else:
        text = f"exactly 0 {where}, by the clamp ({clamp}): {base} pulls there and the objective does not"
        _add(row, out, "KLA402", text, None, "note")


def _unfailed(row: Row, out: Judgement, bounds: Bounds) -> tuple[str, str | None]:
    """Return pass or vacuous for a row without errors, and why."""
    if not row.tally.points:
        return "vacuous", "no points were measured"
    if bounds:
        return "pass", None
    if row.law is None:
        return "vacuous", "no law is stated for it and no bound was asked for"
    core = [v for v in out.bands if v.band.lo >= CORE_LOW * 0.999 and v.band.hi <= CORE_HIGH]
    considered = core or out.bands
    vacuous = [v for v in considered if v.verdict == "vacuous"]
    if not considered:
        return "vacuous", "every point is at log-ratio 0"
    if vacuous:
        below = max(v.band.hi for v in vacuous)
        return "vacuous", (
            f"law {row.law.name} is 1 or more for |x| < {below:g}: it promises nothing in "
            f"{len(vacuous)} of {len(considered)} decades"
        )
    return "pass", None
