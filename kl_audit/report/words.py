"""What a report says in words and short figures, shared by the formats for people."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict

from kl_audit.report.schema import Named, Report, Result, WitnessModel


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


def cosine(value: float | None) -> str:
    """Return a cosine to seven digits: what matters is how far it is from 1."""
    return "-" if value is None else f"{value:.7f}".rstrip("0").rstrip(".")


def inputs(w: WitnessModel) -> str:
    """Return the inputs of a witness in decimal, short vectors in brackets."""
    if not isinstance(w.x, dict):
        return f"{w.x:.6g}"
    return ",".join(_value(v) for v in w.x.values())


def _value(v: Named) -> str:
    if isinstance(v, str):
        return v
    return f"[{', '.join(f'{x:.6g}' for x in v)}]" if isinstance(v, list) else f"{v:.6g}"


def plural(word: str, n: int) -> str:
    """Return the word for n of it."""
    return word if n == 1 else f"{word}s"


def target(r: Result) -> str:
    """Name back end and mode, and the device where it is not the CPU."""
    name = f"{r.backend}-{r.mode}"
    return name if r.device == "cpu" else f"{name}-{r.device}"


def what(r: Result) -> str:
    """Name the quantity, and the gradient where it is one, and by what."""
    if r.output == "value":
        return r.quantity
    by = r.with_respect_to
    return f"{r.quantity} gradient" if by is None else f"{r.quantity} gradient by {by}"


def blocks(report: Report) -> list[tuple[tuple[str, str], list[Result]]]:
    """Group the results by dtype and quantity (or gradient), in order."""
    grouped: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for r in report.results:
        grouped[(r.dtype, what(r))].append(r)
    return list(grouped.items())


def measured_blocks(report: Report) -> list[tuple[str, str, list[Result]]]:
    """Return (quantity and output, dtype, rows that were measured) of every block that has some."""
    found = []
    for (dtype, name), rows in blocks(report):
        measured = [r for r in rows if r.verdict != "skipped"]
        if measured:
            found.append((name, dtype, measured))
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
    for name, dtype, measured in measured_blocks(report):
        stock = [r for r in measured if r.role == "stock"]
        parts = _negatives(stock) + _trusted(stock) if stock else []
        if parts:
            lines.append(f"{name} {dtype}: {'; '.join(parts)}.")
    return lines


def _everywhere(who: list[str], rows: list[Result]) -> str:
    """Name the targets, or ``everywhere`` for all of several."""
    unique = list(dict.fromkeys(who))
    measured = {target(r) for r in rows if r.role == "audited"}
    return "everywhere" if len(measured) > 1 and measured == set(unique) else ", ".join(unique)


def breaking(rows: list[Result]) -> list[str]:
    """Return where the rows of a block break, those of one text together."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for r in rows:
        for t in r.thresholds:
            grouped[f"{t.text} ({t.how})"].append(target(r))
    return [f"{_everywhere(who, rows)}: {text}" for text, who in grouped.items()]


def differences(rows: list[Result]) -> list[str]:
    """Return where the execution mode, or the length of the array, changes the results of audited rows."""
    audited = [r for r in rows if r.role == "audited"]
    return [f.message for r in audited for f in r.findings if f.code in ("KLA105", "KLA106")]


def remedies(rows: list[Result]) -> list[str]:
    """Return what to do about each failed row, those of one text together, with the errors measured."""
    grouped: dict[str, list[Result]] = defaultdict(list)
    for r in rows:
        if r.remedy is not None:
            grouped[r.remedy.text].append(r)
    lines = []
    for text, members in grouped.items():
        lines.append(f"{_everywhere([target(r) for r in members], rows)}: {text}")
        if members[0].remedy and members[0].remedy.formulation:
            lines += [
                f"  {target(r)}: relative error {short(r.remedy.max_rel_error)}, "
                f"{r.formulation} {short(r.remedy.audited_rel_error)}"
                for r in members
                if r.remedy
            ]
    return lines


def roundings(rows: list[Result]) -> list[tuple[str, list[str]]]:
    """Return, where the inputs' rounding weighs, the split of the error: (row, lines by decade)."""
    found = []
    for r in rows:
        lines = [
            f"|d| {p.lo:>6.0e} .. {p.hi:<6.0e}  inputs {short(p.input_median):>7} (max {short(p.input_max)})"
            f"   formula {short(p.formula_median):>7} (max {short(p.formula_max)})"
            for p in r.input_rounding
        ]
        told = [f.message for f in r.findings if f.code == "KLA501"]
        if lines and told:
            found.append((target(r), [*lines, *told]))
    return found


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
