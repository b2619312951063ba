"""What a report says in words and short figures, shared by the formats for people."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict

from kl_audit.report.schema import Report, Result


def short(value: float | None) -> str:
    """Return a figure in three or four characters' worth of digits."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value == 0:
        return "0"
    if 0.001 <= abs(value) < 1000:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def plural(word: str, n: int) -> str:
    """Return the word for n of it."""
    return word if n == 1 else f"{word}s"


def target(r: Result) -> str:
    """Name back end and mode, and the device where it is not the CPU."""
    name = f"{r.backend}-{r.mode}"
    return name if r.device == "cpu" else f"{name}-{r.device}"


def blocks(report: Report) -> list[tuple[tuple[str, str, str], list[Result]]]:
    """Group the results by dtype, quantity and output, in order."""
    grouped: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for r in report.results:
        grouped[(r.dtype, r.quantity, r.output)].append(r)
    return list(grouped.items())


def measured_blocks(report: Report) -> list[tuple[str, str, list[Result]]]:
    """Return (quantity and output, dtype, rows that were measured) of every block that has some."""
    found = []
    for (dtype, quantity, output), rows in blocks(report):
        measured = [r for r in rows if r.verdict != "skipped"]
        if measured:
            what = quantity if output == "value" else f"{quantity} gradient"
            found.append((what, dtype, measured))
    return found


def law_cell(r: Result) -> str:
    """Say how a row's law fared: holds, with its constant, or who is to blame."""
    if r.law is None:
        return "-"
    unit = "" if "ulp" in r.law.name and "|" not in r.law.name else "C="
    constant = f"{unit}{short(r.law.constant)}"
    return constant if r.law.holds else f"{constant} {r.law.blame}"


def skipped_lines(report: Report) -> list[str]:
    """Return every reason for skipping once, with what it skipped."""
    reasons: dict[str, list[Result]] = defaultdict(list)
    for r in report.results:
        if r.verdict == "skipped":
            reasons[r.reason or ""].append(r)
    lines = []
    for reason, rows in reasons.items():
        targets = list(dict.fromkeys(target(r) for r in rows))
        names = list(dict.fromkeys(r.formulation for r in rows))
        dtypes = list(dict.fromkeys(r.dtype for r in rows))
        what = ", ".join(targets)
        if len(names) == 1:
            what = f"{names[0]} {'/'.join(dtypes)}"
        lines.append(f"{what}: skipped, {reason} ({len(rows)} row{'' if len(rows) == 1 else 's'})")
    return lines


def headline(report: Report) -> list[str]:
    """Return what the results say in words, one line a block."""
    lines = []
    for what, dtype, measured in measured_blocks(report):
        parts = _negatives(measured) + _trusted(measured)
        if parts:
            lines.append(f"{what} {dtype}: {'; '.join(parts)}.")
    return lines


def _share(r: Result) -> str:
    n, of = r.negatives or 0, r.grid.points
    return f"1 value in {round(of / n)}" if n else "none"


def _negatives(rows: list[Result]) -> list[str]:
    """Say where expm1's repair is undone, else the worst share of negative results."""
    by_name: dict[str, list[Result]] = defaultdict(list)
    for r in rows:
        if r.negatives is not None:
            by_name[r.formulation].append(r)
    expm1 = by_name.get("expm1", [])
    broken = [r for r in expm1 if r.negatives]
    clean = [r for r in expm1 if not r.negatives]
    parts = []
    if broken and clean:
        worst = max(broken, key=lambda r: r.negatives or 0)
        parts.append(
            f"expm1 under {target(worst)}: negative for {_share(worst)}, "
            f"{', '.join(target(r) for r in clean)} never"
        )
    negative = [r for r in rows if r.negatives and r.formulation != "expm1"]
    if negative:
        worst = max(negative, key=lambda r: (r.negatives or 0) / max(r.grid.points, 1))
        parts.append(f"{worst.formulation} negative for {_share(worst)} ({target(worst)})")
    return parts


#: A pass with more than this is called what it is: within its law, and no more.
TRUSTED_ULP = 4.0


def _trusted(rows: list[Result]) -> list[str]:
    """Name the formulations that pass wherever they were measured, and how good they are."""
    by_name: dict[str, list[Result]] = defaultdict(list)
    for r in rows:
        by_name[r.formulation].append(r)
    accurate, lawful = [], []
    for name, members in by_name.items():
        if {r.verdict for r in members} != {"pass"}:
            continue
        ulps = max(r.max_ulp_error or 0 for r in members)
        if ulps <= TRUSTED_ULP:
            accurate.append(f"{name} ({short(ulps)} ulp)")
        else:
            rel = max(r.max_rel_error or 0 for r in members)
            lawful.append(f"{name} (up to {short(ulps)} ulp, relative error {short(rel)})")
    parts = [f"accurate wherever measured: {', '.join(accurate)}" if accurate
             else "no formulation passes and is accurate wherever measured"]  # fmt: skip
    if lawful:
        parts.append(f"within its law, no more: {', '.join(lawful)}")
    return parts


def again(report: Report) -> str:
    """Return the command that makes the report again."""
    return f"{shlex.join(report.command)}    (seed {report.seed})"


def failures(report: Report) -> list[str]:
    """Return the line of every finding of level error."""
    return [f.message for r in report.results for f in r.findings if f.level == "error"]


def notes(report: Report) -> list[str]:
    """Return the line of every note."""
    return [f.message for r in report.results for f in r.findings if f.level == "note"]
