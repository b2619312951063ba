"""``kl-audit audit``: the reader's own function or expression."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

#: Relative error allowed by default, where the log-ratio is 1e-6 or more and the truth a normal number.
MAX_REL = 0.01


def command(
    target: Annotated[
        str | None,
        typer.Argument(help="package.module:function, or path/to/file.py:function.", show_default=False),
    ] = None,
    expr: Annotated[
        str | None, typer.Option(help='A formula instead: "clip(exp(d) - d - 1, -10, 10)".')
    ] = None,
    quantity: Annotated[
        str | None, typer.Option(help="What it ought to compute: k3, k3-pair, logsumexp, ...")
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(help="What it ought to compute, as a formula in exact arithmetic."),
    ] = None,
    args: Annotated[
        str | None, typer.Option(help="Inputs and parameters: policy=logprob,ref=ref_logprob, or d.")
    ] = None,
    with_: Annotated[
        list[str] | None, typer.Option("--with", help="A constant argument, NAME=VALUE. Repeatable.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", help="Which part of a tuple or dict is the result.")
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="Evaluate at these inputs, NAME=0,200 (NAME:bf16=... for its own dtype)."),
    ] = None,
    only: Annotated[str | None, typer.Option(help="value or gradient.  [default: both]")] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="Show this stock formulation beside it. Repeatable.")
    ] = None,
    backend: Annotated[
        list[str] | None, typer.Option(help="numpy, torch, jax.  [default: those that it accepts]")
    ] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="eager, compile, jit; or all.  [default: all]")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, tpu, ...")] = "cpu",
    dtype: Annotated[
        list[str] | None, typer.Option(help="fp64, fp32, bf16, fp16; or all.  [default: fp32]")
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(help="As in sweep.  [default: exhaustive for bf16 and fp16, else decades]"),
    ] = None,
    per_decade: Annotated[
        int | None, typer.Option(help="Values in each decade.  [default: 2000; fp64: 200]")
    ] = None,
    size: Annotated[
        list[int] | None, typer.Option(help="Vocabulary size or token count of a vector quantity.")
    ] = None,
    clamp: Annotated[
        str, typer.Option(help="auto (found from outside), none, in:LO,HI or out:LO,HI.")
    ] = "auto",
    max_rel: Annotated[
        float, typer.Option(help="Fail above this relative error (|log-ratio| >= 1e-6).")
    ] = MAX_REL,
    max_ulp: Annotated[float | None, typer.Option(help="Fail above this many ulp.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sampled grids and cases.")] = 0,
    top: Annotated[int, typer.Option(min=1, max=1000, help="Worst points to keep.")] = 5,
    explain: Annotated[
        bool, typer.Option("--explain/--no-explain", help="Thresholds, input rounding and remedies.")
    ] = True,
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
    """Audit a function or a formula: value, gradient, modes, thresholds, and what to do about it."""
    from kl_audit.audit.request import Request, prepare
    from kl_audit.cli.output import parse_destinations, write
    from kl_audit.cli.progress import Bar
    from kl_audit.report.audited import report_of

    destinations = parse_destinations(output_format or [], out)
    try:
        job = prepare(
            Request(
                target, expr, quantity, truth, args, tuple(with_ or ()), output, tuple(at or ()), only,
                tuple(against or ()), tuple(backend or ()), tuple(mode or ()), device, tuple(dtype or ()),
                grid, per_decade, tuple(size or ()), clamp, max_rel, max_ulp, seed, top, explain,
            )
        )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo("kl-audit: interrupted before anything was measured.", err=True)
        raise typer.Exit(130) from None
    done = []
    interrupted = False
    # What the function prints is told once, as a fact, and must not end up within the report.
    with (
        Bar(progress and not quiet and sys.stderr.isatty()) as bar,
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        try:
            for row in job.run(bar):
                done.append(row)
        except KeyboardInterrupt:
            interrupted = True
    report = report_of(done, job, ["kl-audit", *sys.argv[1:]], interrupted)
    if done or not interrupted:
        write(report, destinations, verbose, quiet)
    if interrupted:
        told = "the rows above are complete" if done else "no row was finished"
        typer.echo(f"kl-audit: interrupted; {told}.", err=True)
        raise typer.Exit(130)
    if len(report.results) == report.summary.skipped:
        typer.echo("kl-audit: nothing was measured: every row is skipped (see the report).", err=True)
        raise typer.Exit(1)
    if report.summary.fail:
        raise typer.Exit(1)
