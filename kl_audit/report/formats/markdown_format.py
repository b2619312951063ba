"""The report as GitHub-flavoured Markdown."""

from __future__ import annotations

from kl_audit.report import words
from kl_audit.report.formats.base import Format, Options
from kl_audit.report.schema import Report

_HEAD = (
    "| formulation | where | max ulp | max rel | negative | false zeros | non-finite | law | verdict |\n"
    "|---|---|--:|--:|--:|--:|--:|---|---|"
)


def cell(text: object) -> str:
    """Return a text as the cell of a table."""
    return str("-" if text is None else text).replace("|", "\\|")


def write_markdown(report: Report, options: Options) -> str:
    """Return the report as Markdown."""
    out = ["# kl-audit report", ""]
    if report.subject is not None:
        out += [f"Audited: `{report.subject.text}`", "", *(f"- {f}" for f in report.subject.facts), ""]
    for what, dtype, measured in words.measured_blocks(report):
        grid = measured[0].grid
        out += [f"## {what}, {dtype} ({grid.points:,} points, {grid.kind})", "", _HEAD]
        for r in measured:
            cells = [
                r.formulation, words.target(r), words.short(r.max_ulp_error),
                words.short(r.max_rel_error), r.negatives, r.false_zeros, r.nonfinite_mismatches,
                words.law_cell(r), f"**{r.verdict}**" if r.verdict == "fail" else r.verdict,
            ]  # fmt: skip
            out.append("| " + " | ".join(cell(c) for c in cells) + " |")
        out.append("")
        for title, lines in (
            ("Where it breaks", words.breaking(measured)),
            ("Modes and lengths", words.differences(measured)),
            ("What to do", words.remedies(measured)),
        ):
            if lines:
                out += [f"**{title}**", "", *(f"- {line.strip()}" for line in lines), ""]
    for title, lines in (
        ("Summary", words.headline(report)),
        ("Skipped", words.skipped_lines(report)),
        ("Failures", [f"`{line}`" for line in words.failures(report)]),
    ):
        if lines:
            out += [f"## {title}", "", *(f"- {line}" for line in lines), ""]
    versions = ", ".join(f"{n} {v}" for n, v in report.versions.items())
    out += [f"{versions}. Again: `{words.again(report)}`", ""]
    return "\n".join(out)


FORMAT = Format("markdown", write_markdown)
