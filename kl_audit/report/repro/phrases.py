"""What the outcomes say in words, shared by the formats for people."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from kl_audit.report.repro.schema import CaseRow, CureModel, ReproReport
from kl_audit.report.words import plural, short

OUTCOMES = ("reproduced", "fixed", "changed", "skipped")
_BLAME = {
    "arithmetic": "floating point: in exact arithmetic the formula is right",
    "formula": "not rounding: the formula computes something else",
    "both": "the formula computes something else, and rounding adds to it",
    "nothing": "not rounding: the arithmetic is right for these inputs",
}


def parts(rows: Sequence[CaseRow]) -> list[tuple[str, list[CaseRow]]]:
    """Group the rows of a case by part, in order; the framework's own functions with theirs."""
    names = list(dict.fromkeys(r.part for r in rows))
    return [(n, [r for r in rows if r.part == n]) for n in names]


def by_case(report: ReproReport) -> dict[str, list[CaseRow]]:
    """Group all rows by case, in order."""
    return {key: list(rows) for key, rows in groupby(report.cases, key=lambda r: r.id)}


def where(row: CaseRow) -> str:
    """Name back end and mode, and the package whose own function was called."""
    return f"{row.backend}-{row.mode}"


def number(x: float | None) -> str:
    """Return a number in the digits that float32 has."""
    return "-" if x is None else f"{x:.8g}"


def truth(text: str | None) -> str:
    """Return a certified decimal in eight digits."""
    if text is None:
        return "undefined"
    value = float(text)
    if (value == 0 or math.isinf(value)) and text.lstrip("-") not in ("0.0", "0", "inf"):
        return text[:12]
    return f"{value:.8g}"


def versions(found: dict[str, str]) -> str:
    """Return ``jax 0.10.2, jaxlib 0.10.2``."""
    return ", ".join(f"{n} {v}" for n, v in found.items())


def outcome(row: CaseRow) -> str:
    """Return the outcome, and what was expected where it is another."""
    if row.as_expected or row.expected_outcome in (None, row.outcome):
        return row.outcome
    return f"{row.outcome}, expected {row.expected_outcome}"


def outcomes(rows: Sequence[CaseRow]) -> str:
    """Return ``4 reproduced, 2 fixed``."""
    counts = Counter(str(r.outcome) for r in rows)
    return ", ".join(f"{counts[o]} {o}" for o in OUTCOMES if counts[o])


def subject(row: CaseRow) -> str:
    """Return what is computed, in which dtype, of what."""
    what = f"{row.quantity} as {row.formula}" if row.quantity else row.formula
    of = "" if row.output == "value" else " (gradient)"
    measure = "" if row.measure == "result" else f", {row.measure.replace('_', ' ')}"
    return f"{what}{of}{measure}, {row.dtype}, {row.inputs}"


def reported(row: CaseRow) -> str:
    """Return what was reported, and with which versions."""
    text = f"reported {row.reported}" if row.reported is not None else "reported in words"
    if row.reported_with:
        text += f" ({versions(row.reported_with)})"
    return f"{text}; reproduced when {row.reproduced_when}"


def blames(rows: Sequence[CaseRow]) -> list[str]:
    """Return whose fault it is, for the rows on which something is reproduced or changed."""
    told: dict[str, list[CaseRow]] = {}
    for row in rows:
        if row.blame is not None and row.outcome in ("reproduced", "changed"):
            told.setdefault(row.blame, []).append(row)
    lines = []
    for blame, members in told.items():
        code = f" [{members[0].code}]" if members[0].code else ""
        of = f"{', '.join(where(r) for r in members)}: " if len(told) > 1 else ""
        lines.append(f"{of}{_BLAME[blame]}{code}")
    return lines


def cures(rows: Sequence[CaseRow]) -> list[str]:
    """Return what cures a part, measured: one line for each, the worst of its rows."""
    found: dict[str, list[CureModel]] = {}
    for row in rows:
        for cure in row.cures:
            found.setdefault(cure.what, []).append(cure)
    return [_cure(what, measured) for what, measured in found.items()]


def _cure(what: str, measured: list[CureModel]) -> str:
    says = f" ({measured[0].says})" if measured[0].says else ""
    failed = [c for c in measured if c.reason is not None]
    good = [c for c in measured if c.reason is None]
    if not good:
        return f"{what}{says}: {failed[0].reason}"
    worst = max(good, key=lambda c: math.inf if c.relative_error is None else c.relative_error)
    verdict = "cures it" if all(c.cures for c in good) else (
        "does not cure it" if not any(c.cures for c in good) else "cures it in part")  # fmt: skip
    error = "" if worst.relative_error is None else f", relative error {short(worst.relative_error)}"
    return f"{what}{says} {verdict}: gives {number(worst.seen)}{error}"


def totals(report: ReproReport) -> str:
    """Return the counts in one line."""
    s = report.summary
    n = len(report.cases)
    cases = len(report.reports)
    end = "all as expected" if not s.unexpected else f"{s.unexpected} not as expected"
    return f"{cases} {plural('case', cases)}, {n} {plural('row', n)}: {outcomes(report.cases)}; {end}"


def skips(report: ReproReport) -> list[str]:
    """Return why rows were skipped, one line for each reason."""
    grouped: dict[str, list[str]] = {}
    for row in report.cases:
        if row.outcome == "skipped":
            grouped.setdefault(row.reason or "no reason", []).append(row.id)
    return [f"skipped, {reason}: {_few(list(dict.fromkeys(ids)))}" for reason, ids in grouped.items()]


def _few(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def unexpected(report: ReproReport) -> list[str]:
    """Return a line for each row that is not as expected."""
    return [line(row) for row in report.cases if not row.as_expected]


def line(row: CaseRow) -> str:
    """Return a row in one line: what came out, what was expected, what is right."""
    head = f"{row.id} {row.part} {row.dtype} {where(row)}: {outcome(row)}"
    seen = (
        f": got {row.seen_hex} ({number(row.seen)}), want {truth(row.truth)}" if row.seen is not None else ""
    )
    reason = f" ({row.reason})" if row.reason else ""
    code = f" [{row.code}]" if row.code else ""
    return f"{head}{seen}{reason}{code}"


def again(report: ReproReport) -> str:
    """Return the command that makes the report again."""
    return shlex.join(report.command)
