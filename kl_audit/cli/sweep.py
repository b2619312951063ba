"""``kl-audit sweep``: the main job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kl_audit.sweep import Block


def command(
    quantity: Annotated[
        list[str] | None,
        typer.Option(help="k1, k2, k3, ratio, weighted-k3, k3-pair, ...; or all.  [default: k3]"),
    ] = None,
    formulation: Annotated[
        list[str] | None, typer.Option(help="naive, expm1, hybrid, ...; or all.  [default: all]")
    ] = None,
    backend: Annotated[
        list[str] | None, typer.Option(help="numpy, torch, jax; or all.  [default: all]")
    ] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="eager, compile, jit; or all.  [default: all]")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, tpu, ...")] = "cpu",
    dtype: Annotated[
        list[str] | None, typer.Option(help="fp64, fp32, bf16, fp16; or all.  [default: fp32]")
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", help="value or gradient; or all.  [default: value]"),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(
            help="exhaustive, decades, LO:HI:N, LO:HI:N:log, a list (0.1,0.01), or a file.  "
            "[default: exhaustive for bf16 and fp16, decades for fp32 and fp64]"
        ),
    ] = None,
    per_decade: Annotated[
        int | None, typer.Option(help="Values in each decade.  [default: 2000; fp64: 200]")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sampled grids.")] = 0,
    top: Annotated[int, typer.Option(min=1, max=1000, help="Worst points to keep.")] = 5,
    max_ulp: Annotated[
        float | None, typer.Option(help="Fail a row whose error exceeds this many ulp.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 when a row fails, or when none was measured.")
    ] = False,
    output_format: Annotated[
        list[str] | None,
        typer.Option(help="text, json, jsonl, markdown; json=FILE to a file. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", help="Write the report to this file.")] = None,
    progress: Annotated[
        bool, typer.Option("--progress/--no-progress", help="Show progress on stderr.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No text on stdout.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Histograms, worst points, notes.")
    ] = False,
) -> None:
    """Measure quantity x formulation x back end x mode x dtype on a grid against the truth."""
    from kl_audit.checks import judge
    from kl_audit.cli.output import parse_destinations, write
    from kl_audit.cli.progress import Bar
    from kl_audit.errors import UsageError
    from kl_audit.report.build import build_report, build_result
    from kl_audit.sweep import sweep

    destinations = parse_destinations(output_format or [], out)
    if max_ulp is not None and not max_ulp >= 0:
        raise UsageError(f"--max-ulp {max_ulp:g}: expected a number of ulp, 0 or more.")
    blocks = plan(
        quantity or ["k3"], output or ["value"], formulation or [], backend or ["all"],
        mode or ["all"], device, dtype or ["fp32"], grid, per_decade,
    )  # fmt: skip
    done = []
    interrupted = False
    shown = progress and not quiet and sys.stderr.isatty()
    with Bar(shown) as bar:
        try:
            for row in sweep(blocks, seed, top, bar):
                done.append((row, build_result(row, judge(row, max_ulp))))
        except KeyboardInterrupt:
            interrupted = True
    command_line = ["kl-audit", *sys.argv[1:]]
    report = build_report(done, command_line, seed, interrupted)
    if done or not interrupted:
        write(report, destinations, verbose, quiet)
    if interrupted:
        finished = ", ".join(bar.finished) or "nothing"
        where = f"in {bar.current}" if bar.current else "between blocks"
        typer.echo(f"kl-audit: interrupted {where}; finished: {finished}.", err=True)
        raise typer.Exit(130)
    measured = len(report.results) - report.summary.skipped
    if not measured:
        typer.echo("kl-audit: nothing was measured: every row is skipped (see the report).", err=True)
    if check and (report.summary.fail or not measured):
        raise typer.Exit(1)


def plan(
    quantities: list[str], outputs: list[str], formulations: list[str], backends: list[str],
    modes: list[str], device: str, dtypes: list[str], grid: str | None, per_decade: int | None,
) -> list[Block]:  # fmt: skip
    """Turn names into blocks; raises UsageError for an unknown name or an empty combination."""
    from kl_audit.errors import unknown
    from kl_audit.formulations import find_formulations
    from kl_audit.quantities import QUANTITIES, find_quantity
    from kl_audit.selection import choose_formats, choose_targets, grid_for, named
    from kl_audit.sweep import Block

    targets = choose_targets(backends, modes, device)
    for name in outputs:
        if name not in ("value", "gradient", "all"):
            raise unknown("output", name, ["value", "gradient"])
    fmts = choose_formats(dtypes)
    chosen = [find_quantity(n) for n in named(quantities, list(QUANTITIES))]
    # A formulation belongs to one quantity: each name must fit at least one of those asked for.
    fitting = [f.name for q in chosen for f in find_formulations(q, [])]
    for name in formulations:
        if name not in (*fitting, "all"):
            raise unknown(f"formulation of {', '.join(q.name for q in chosen)}", name,
                          list(dict.fromkeys(fitting)))  # fmt: skip
    blocks = []
    for fmt in fmts:
        for q in chosen:
            parsed = grid_for(grid, per_decade, fmt, len(q.inputs))
            known = {f.name for f in find_formulations(q, [])}
            wanted = formulations if len(chosen) == 1 else [f for f in formulations if f in known]
            if formulations and "all" not in formulations and not wanted:
                continue
            fs = tuple(find_formulations(q, wanted))
            blocks += [Block(q, o, fmt, parsed, fs, targets) for o in named(outputs, ["value", "gradient"])]
    return blocks
