"""The outcomes as GitHub-flavoured Markdown, to answer a thread with."""

from __future__ import annotations

from kl_audit.report.formats.base import Format, Options
from kl_audit.report.formats.markdown_format import cell
from kl_audit.report.repro import phrases
from kl_audit.report.repro.schema import ReproReport
from kl_audit.report.words import short

_HEAD = "| part | where | reported | seen | truth | relative error | outcome |\n|---|---|--:|--:|--:|--:|---|"


def write_markdown(report: ReproReport, options: Options) -> str:
    """Return the report as Markdown."""
    out = ["# kl-audit repro", "", phrases.totals(report), ""]
    rows = phrases.by_case(report)
    for info in report.reports:
        out += [f"## {info.id}: {info.title}", "", f"{info.source} ({info.kind})", "", _HEAD]
        for r in rows[info.id]:
            error = "-" if r.relative_error is None else short(r.relative_error)
            where = phrases.where(r) + (f", {r.live}" if r.live else "")
            told = phrases.outcome(r) + (f" ({r.reason})" if r.reason else "")
            seen = [phrases.number(r.seen), "-" if r.seen is None else phrases.truth(r.truth)]
            cells = [r.part, where, r.reported, *seen, error, told]
            out.append("| " + " | ".join(cell(c) for c in cells) + " |")
        out += ["", info.about, ""]
        cures = [c for _, members in phrases.parts(rows[info.id]) for c in phrases.cures(members)]
        out += [*(f"- {c}" for c in cures), ""] if cures else []
        out += [f"Cure: {info.cure}", ""] if info.cure else []
    out += [f"{phrases.versions(report.versions)}. Again: `{phrases.again(report)}`", ""]
    return "\n".join(out)


CASE_FORMAT = Format("markdown", write_markdown)
