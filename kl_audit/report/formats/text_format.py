"""The report for a terminal: tables that fit 80 columns, and the findings in words."""

from __future__ import annotations

import io
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kl_audit.report import words
from kl_audit.report.formats.base import Format, Options
from kl_audit.report.schema import Report, Result

_STYLE = {"pass": "green", "fail": "red", "vacuous": "yellow", "skipped": "dim"}
#: Law cells have little room.
_BLAME = {"formulation": "form", "library": "lib"}
#: Failure lines shown without --verbose, for each block.
SHOWN = 12


def write_text(report: Report, options: Options) -> str:
    """Return the report as text."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(options.width, 80),
        force_terminal=options.colour,
        color_system="standard" if options.colour else None,
        highlight=False,
    )
    _subject(console, report)
    for what, dtype, measured in words.measured_blocks(report):
        grid = measured[0].grid
        console.print(
            f"[bold]{what}, {dtype}[/bold], {grid.points:,} "
            f"{words.plural('point', grid.points)} ({grid.kind})",
            soft_wrap=True,
        )
        console.print(_table(measured))
        if grid.kind != "cases" and grid.points <= 16:
            console.print(_points(measured))
        laws = _laws(measured)
        if laws is not None:
            console.print(laws)
        _audit(console, measured)
        if options.verbose:
            for r in measured:
                _details(console, r)
    _lines(console, "", words.skipped_lines(report))
    errors = words.failures(report)
    shown = errors if options.verbose else errors[:SHOWN]
    _lines(console, "Failures", shown)
    if len(shown) < len(errors):
        _lines(console, "", [f"... and {len(errors) - len(shown)} more (-v shows all, and notes)"])
    if errors and report.subject is None:
        _lines(console, "", ["hint: kl-audit formulations describes each, with its error law"])
    if options.verbose:
        _lines(console, "Notes", words.notes(report))
    _lines(console, "Summary", words.headline(report))
    s = report.summary
    total = (
        f"{s.pass_} pass, {s.fail} fail, {s.vacuous} vacuous (the law promises nothing), {s.skipped} skipped"
    )
    _lines(console, "", [total, *_flushing(report)])
    if report.interrupted:
        _lines(console, "", ["interrupted: the blocks above are complete, the others are missing"])
    versions = ", ".join(f"{n} {v}" for n, v in report.versions.items())
    _lines(console, "", [versions, f"again: {words.again(report)}"])
    return stream.getvalue()


def _lines(console: Console, title: str, lines: list[str]) -> None:
    if not lines:
        return
    if title:
        console.print(f"[bold]{title}[/bold]")
    for line in lines:
        console.print(escape(line), soft_wrap=True)


def _subject(console: Console, report: Report) -> None:
    """What is audited, and what was noticed when it was called."""
    subject = report.subject
    if subject is None:
        return
    where = f"  ({subject.file}:{subject.line})" if subject.file else ""
    _lines(console, "", [f"{subject.name}: {subject.text}{where}"])
    _lines(console, "", [f"  {fact}" for fact in subject.facts])
    console.print()


def _audit(console: Console, rows: list[Result]) -> None:
    """Where the audited rows of a block break, whose fault it is, and what to do."""
    _lines(console, "  where it breaks", [f"    {line}" for line in words.breaking(rows)])
    for who, lines in words.roundings(rows)[:1]:
        title = f"  relative error, median: brought by the inputs, added by the formula ({who})"
        _lines(console, "", [title, *(f"    {line}" for line in lines)])
    _lines(console, "  modes and lengths", [f"    {line}" for line in words.differences(rows)])
    _lines(console, "  what to do", [f"    {line}" for line in words.remedies(rows)])


def _table(rows: list[Result]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("formulation", no_wrap=True)
    table.add_column("where", no_wrap=True)
    directed = any(r.cosine is not None for r in rows)
    for name in ("cosine" if directed else "ulp", "rel", "neg", "zeros", "nonf"):
        table.add_column(name, justify="right", no_wrap=True)
    with_law = any(r.law is not None for r in rows)
    if with_law:
        table.add_column("law", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name, group in groupby(rows, key=lambda r: r.formulation):
        for i, r in enumerate(group):
            table.add_row(
                name if i == 0 else "",
                words.target(r),
                words.cosine(r.cosine) if directed else words.short(r.max_ulp_error),
                words.short(r.max_rel_error),
                _count(r.negatives),
                _count(r.false_zeros),
                _count(r.nonfinite_mismatches),
                *([_law(r)] if with_law else []),
                Text(r.verdict, style=_STYLE[r.verdict]),
            )
    return table


def _count(n: int | None) -> str:
    return "-" if n is None else str(n) if n < 100_000 else words.short(n)


def _law(r: Result) -> str:
    if r.law is None:
        return "-"
    if r.law.constant is None:
        if not r.law.holds:
            return _BLAME[r.law.blame or "formulation"]
        judged = any(b.verdict == "pass" and b.lo < 1 for b in r.bands)
        return "holds" if judged or not any(b.lo < 1 for b in r.bands) else "vacuous"
    constant = words.short(r.law.constant)
    if r.law.holds:
        return constant
    return f"{constant} {_BLAME[r.law.blame or 'formulation']}"


def _points(rows: list[Result]) -> Table:
    """Every point of a short list: what each row made of it."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("formulation", "where", "x", "got", "truth"):
        table.add_column(name, no_wrap=True)
    table.add_column("ulp", justify="right", no_wrap=True)
    for r in rows:
        for w in sorted(r.top, key=lambda w: str(w.x)):
            truth = f"{float(w.truth):.9g}" if w.truth else "-"
            x = words.inputs(w)
            table.add_row(r.formulation, words.target(r), x, f"{w.got:.9g}", truth, words.short(w.ulp_error))
    return table


def _laws(rows: list[Result]) -> Table | None:
    """The law by decade, 1e-6 to 1: the bound, and each row's greatest relative error."""
    chosen = [
        r for r in rows
        if r.law is not None
        and not r.law.name.endswith("ulp")
        and not r.formulation.startswith("clamp")  # the same law as the form inside
    ]  # fmt: skip
    decades = sorted({b.lo for r in chosen for b in r.bands if 0.9e-6 < b.lo < 0.9})
    if not chosen or not decades:
        return None
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("relative error, |x| from", no_wrap=True)
    for lo in decades:
        table.add_column(f"{lo:.0e}".replace("e-0", "e-"), justify="right", no_wrap=True)
    for name, group in groupby(chosen, key=lambda r: (r.formulation, r.law.name if r.law else "")):
        members = list(group)
        bounds = {b.lo: b.law_bound for b in members[0].bands}
        table.add_row(f"{name[0]}: its law", *(words.short(bounds.get(lo)) for lo in decades),
                      style="dim")  # fmt: skip
        for r in members:
            cells = {b.lo: b for b in r.bands}
            marks = {"fail": "!", "vacuous": "~", "pass": " ", "skipped": " "}
            table.add_row(
                f"  {words.target(r)}",
                *(
                    f"{words.short(cells[lo].max_rel_error)}{marks[cells[lo].verdict]}"
                    if lo in cells
                    else "-"
                    for lo in decades
                ),
            )
    table.caption = "! exceeds its law   ~ vacuous: a bound of 1 or more promises nothing"
    table.caption_justify = "left"
    return table


def _details(console: Console, r: Result) -> None:
    """The signed histogram of ulp errors and the worst points of one row."""
    console.print(f"[bold]{r.formulation} {words.target(r)}[/bold]: {r.verdict}"
                  f"{f' ({escape(r.reason)})' if r.reason else ''}", soft_wrap=True)  # fmt: skip
    h = r.histogram
    if h is not None:
        within = h.negative[0] + h.positive[0]
        console.print(f"  within 1/2 ulp {within:,}; beyond (too low | too high):")
        peak = max(1, *h.negative[1:], *h.positive[1:])
        for i, edge in enumerate(h.edges):
            low, high = h.negative[i + 1], h.positive[i + 1]
            if low or high:
                left, right = "#" * -(-20 * low // peak), "#" * -(-20 * high // peak)
                console.print(f"  {low:>9,} {left:>20} |{edge:^6g}| {right:<20} {high:,}")
    for w in r.top:
        console.print(
            f"  {words.short(w.ulp_error):>8} ulp at x={w.x_hex} ({w.x_bits}): "
            f"got {w.got_hex}, truth {w.truth}",
            soft_wrap=True,
        )


def _flushing(report: Report) -> list[str]:
    flushed = [k for k, v in report.platform.get("subnormals", {}).items() if v != "kept"]
    if not flushed:
        return []
    return [f"subnormals are flushed to zero (stated, not held against a row): {', '.join(flushed)}"]


FORMAT = Format("text", write_text)
