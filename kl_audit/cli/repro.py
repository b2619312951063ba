"""``kl-audit repro``: public reports, run on the versions that are here."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            help="Cases: tunix-1560, issue-1560, google/tunix#1560, a file of yours; or all.",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only of this kind (words of it). Repeatable.")
    ] = None,
    backend: Annotated[
        list[str] | None, typer.Option(help="numpy, torch, jax.  [default: those of each case]")
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(help="eager, compile, jit; or all.  [default: those of each case]"),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Call the frameworks' own functions too, where installed.")
    ] = False,
    cases: Annotated[
        list[Path] | None, typer.Option("--cases", help="A folder of your own case files. Repeatable.")
    ] = None,
    allow_import: Annotated[
        bool, typer.Option("--allow-import", help="Let your case files name functions to be imported.")
    ] = False,
    output_format: Annotated[
        list[str] | None,
        typer.Option(help="text, json, junit, markdown; json=FILE to a file. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", help="Write the report to this file.")] = None,
    progress: Annotated[
        bool, typer.Option("--progress/--no-progress", help="Show progress on stderr.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No text on stdout.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every case in full.")] = False,
) -> None:
    """Say of public reports whether they are still true here: reproduced, fixed, changed or skipped.

    Exit code 0 where every outcome is the one that the case expects of these versions, 1 where not.
    """
    from kl_audit.cases.find import choose
    from kl_audit.cases.live import live_rows
    from kl_audit.cases.rows import Row
    from kl_audit.cases.run import Settings, run_case
    from kl_audit.cli.choice import shelf
    from kl_audit.cli.output import parse_destinations, write
    from kl_audit.cli.progress import Bar
    from kl_audit.errors import UsageError
    from kl_audit.report.repro import find_case_format
    from kl_audit.report.repro.build import repro_report
    from kl_audit.selection import choose_targets

    destinations = parse_destinations(output_format or [], out, find_case_format)
    files = [Path(name) for name in ids or [] if name.endswith(".toml")]
    known = shelf(cases or [], files)
    if not ids and not kind:
        raise UsageError("which case? Name one (tunix-1560, issue-1560), or all; kl-audit cases lists them.")
    named = [_id_of(name) for name in ids or ["all"]]
    chosen = choose(named, kind or [], known.cases)
    if backend or mode:
        choose_targets(backend or [], mode or [], "cpu")  # refuses unknown names
    asked = () if not backend or "all" in backend else tuple(backend)
    done: list[Row] = []
    interrupted = False
    with (
        Bar(progress and not quiet and sys.stderr.isatty()) as bar,
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),  # what a library prints must not end up within the report
    ):
        bar.start("cases", len(chosen))
        try:
            for case in chosen:
                bar.advance(case.id)
                settings = Settings(asked, tuple(mode or ()), allow_import or case.id not in known.own)
                done += run_case(case, settings, bar.tell)
                done += live_rows(case, settings) if live else []
        except KeyboardInterrupt:
            interrupted = True
    report = repro_report(chosen, done, ["kl-audit", *sys.argv[1:]], interrupted)
    if done or not interrupted:
        write(report, destinations, verbose, quiet)
    if interrupted:
        typer.echo("kl-audit: interrupted; the rows above are complete.", err=True)
        raise typer.Exit(130)
    missing = [r for r in done if r.outcome == "skipped" and r.expected != "skipped"]
    if missing and all(r.outcome == "skipped" for r in done):
        typer.echo("kl-audit: nothing was measured: every row is skipped (see the report).", err=True)
        raise typer.Exit(1)
    if report.summary.unexpected:
        raise typer.Exit(1)


def _id_of(name: str) -> str:
    """Return the id of the case in a file that was named, or the name."""
    if not name.endswith(".toml"):
        return name
    from kl_audit.cases.load import read_file

    return read_file(Path(name)).id
