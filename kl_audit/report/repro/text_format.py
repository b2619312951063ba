"""The outcomes for a terminal: each case in full, or a line each where there are many."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kl_audit.report.formats.base import Format, Options
from kl_audit.report.repro import phrases
from kl_audit.report.repro.schema import CaseInfo, CaseRow, ReproReport

#: Up to this many cases are shown in full; -v shows any number so.
FULL = 3
_STYLE = {"reproduced": "red", "fixed": "green", "changed": "yellow", "skipped": "dim"}


def write_text(report: ReproReport, options: Options) -> str:
    """Return the report as text."""
    stream = io.StringIO()
    console = Console(
        file=stream, width=max(options.width, 80), force_terminal=options.colour,
        color_system="standard" if options.colour else None, highlight=False,
    )  # fmt: skip
    rows = phrases.by_case(report)
    if options.verbose or len(report.reports) <= FULL:
        for info in report.reports:
            _case(console, info, rows[info.id])
    else:
        console.print(_overview(report, rows))
        console.print()
    _lines(console, phrases.skips(report))
    odd = phrases.unexpected(report)
    if odd:
        console.print("[bold]Not as expected[/bold]")
        _lines(console, odd)
    if report.interrupted:
        _lines(console, ["interrupted: the rows above are complete, others are missing"])
    _lines(console, [phrases.totals(report), phrases.versions(report.versions)])
    _lines(console, [f"again: {phrases.again(report)}"])
    return stream.getvalue()


def _lines(console: Console, lines: Sequence[str], indent: str = "") -> None:
    for line in lines:
        console.print(f"{indent}{escape(line)}", soft_wrap=True)


def _case(console: Console, info: CaseInfo, rows: list[CaseRow]) -> None:
    console.print(f"[bold]{escape(info.id)}[/bold]  {escape(info.title)}", soft_wrap=True)
    _lines(console, [f"{info.source}{f' ({info.date})' if info.date else ''}, {info.kind}"])
    for name, members in phrases.parts(rows):
        first = members[0]
        console.print(
            f"\n[bold]{escape(name)}[/bold]{f': {escape(first.says)}' if first.says else ''}", soft_wrap=True
        )
        _lines(console, [phrases.subject(first), phrases.reported(first)], "  ")
        console.print(_table(members))
        _lines(console, [f"{r.live}: skipped, {r.reason}" for r in _missing(members)], "  ")
        _lines(console, phrases.blames(members), "  ")
        _lines(console, phrases.cures(members), "  ")
    console.print()
    console.print(escape(info.about))
    if info.cure:
        console.print(f"Cure: {escape(info.cure)}")
    if info.last_seen:
        _lines(console, [f"Last reproduced with {phrases.versions(info.last_seen)}."])
    console.print()


def _missing(rows: list[CaseRow]) -> list[CaseRow]:
    """Return one row for each framework function that is not here."""
    found = {r.live: r for r in rows if r.live is not None and r.outcome == "skipped"}
    return list(found.values())


def _table(rows: list[CaseRow]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", expand=False)
    both = any(r.value is not None for r in rows)
    names: tuple[str, ...] = ("value", "truth") if both else (rows[0].measure.replace("_", " "), "truth")
    slopes = any(r.gradient is not None for r in rows)
    names += ("gradient", "truth") if slopes else ()
    table.add_column("  where", no_wrap=True)
    for name in names:
        table.add_column(name, no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for r in rows:
        if r.live is not None and r.outcome == "skipped":
            continue
        name = f"  {phrases.where(r)}" + (f" {r.live}" if r.live else "")
        if r.outcome == "skipped":
            table.add_row(name, *("-" for _ in names), Text("skipped", style="dim"))
            continue
        table.add_row(name, *_cells(r, both)[: len(names)], Text(phrases.outcome(r), style=_STYLE[r.outcome]))
    return table


def _cells(r: CaseRow, both: bool) -> list[str]:
    if not both:
        return [phrases.number(r.seen), phrases.truth(r.truth) if r.seen is not None else "-"]
    cells = []
    for got, right in ((r.value, r.value_truth), (r.gradient, r.gradient_truth)):
        cells += [phrases.number(got), "-" if got is None else phrases.truth(right)]
    return cells


def _overview(report: ReproReport, rows: dict[str, list[CaseRow]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("case", no_wrap=True)
    table.add_column("outcomes")
    table.add_column("as expected", no_wrap=True)
    for info in report.reports:
        members = rows[info.id]
        odd = sum(not r.as_expected for r in members)
        table.add_row(
            info.id,
            phrases.outcomes(members),
            Text(f"{odd} not", style="bold red") if odd else Text("yes", style="green"),
        )
    return table


CASE_FORMAT = Format("text", write_text)
