"""``kl-audit cases``: lists, searches and writes case files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kl_audit.cases.model import Case

app = typer.Typer(
    help="List the cases, search them, or write one: kl-audit cases new.", invoke_without_command=True
)
FOLDER = typer.Option("--cases", help="A folder of your own case files. Repeatable.")


@app.callback()
def listed(
    context: typer.Context,
    cases: Annotated[list[Path] | None, FOLDER] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only of this kind (words of it).")] = None,
) -> None:
    """List the cases: id, kind, title.  ``search WORD...`` finds some, ``show ID`` tells all of one."""
    if context.invoked_subcommand is None:
        from kl_audit.cases.find import choose
        from kl_audit.cli.choice import shelf

        _print(choose(["all"], kind or [], shelf(cases or []).cases))


@app.command("search")
def search_command(
    words: Annotated[list[str], typer.Argument(help="All of them, anywhere in a case.")],
    cases: Annotated[list[Path] | None, FOLDER] = None,
) -> None:
    """List the cases that contain every word: in id, title, kind, cause, formula."""
    from kl_audit.cases.find import search
    from kl_audit.cli.choice import shelf
    from kl_audit.errors import UsageError

    known = shelf(cases or []).cases
    found = search(words, known)
    if not found:
        raise UsageError(f"none of the {len(known)} cases contains {' and '.join(repr(w) for w in words)}.")
    _print(found)


@app.command("show")
def show_command(
    case: Annotated[str, typer.Argument(help="Its id or alias.")],
    cases: Annotated[list[Path] | None, FOLDER] = None,
) -> None:
    """Tell what a case is about, without running it."""
    from kl_audit.cases.find import aliases, find_case
    from kl_audit.cli.choice import shelf
    from kl_audit.report.repro.build import formula, inputs

    c = find_case(case, shelf(cases or []).cases)
    typer.echo(f"{c.id}: {c.title}\n{c.source}{f' ({c.date})' if c.date else ''}, {c.kind}")
    typer.echo(f"{' '.join(c.about.split())}")
    if c.cure:
        typer.echo(f"Cure: {' '.join(c.cure.split())}")
    for p in c.part:
        typer.echo(f"  {p.name}: {p.says or ''}")
        typer.echo(
            f"    {formula(p)}, {p.dtype}, {inputs(p)} ({', '.join(p.backends)}; {', '.join(p.modes)})"
        )
        typer.echo(f"    reported {p.reported}, right {p.right}; reproduced when {p.reproduced_when}")
    if aliases(c):
        typer.echo(f"also called {', '.join(sorted(aliases(c)))}")


@app.command("new")
def new_command(
    expr: Annotated[str, typer.Option(help="The formula: 'exp(d) - d - 1'.")],
    at: Annotated[list[str], typer.Option(help="Inputs, NAME=1e-6 or NAME=0,200. Repeatable.")],
    case_id: Annotated[str, typer.Option("--id", help="repo-number, or a name of yours.")],
    quantity: Annotated[str | None, typer.Option(help="What it ought to compute: k3, entropy, ...")] = None,
    truth: Annotated[str | None, typer.Option(help="The same as a formula in exact arithmetic.")] = None,
    with_: Annotated[
        list[str] | None, typer.Option("--with", help="A constant, NAME=VALUE. Repeatable.")
    ] = None,
    output: Annotated[str, typer.Option(help="value or gradient.")] = "value",
    wrt: Annotated[str | None, typer.Option(help="The input of the gradient.")] = None,
    element: Annotated[int | None, typer.Option(min=0, help="Which element of the result.")] = None,
    dtype: Annotated[str, typer.Option(help="fp64, fp32, bf16 or fp16.")] = "fp32",
    backend: Annotated[list[str] | None, typer.Option(help="numpy, torch, jax.  [default: all]")] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="eager, compile, jit; or all.  [default: all]")
    ] = None,
    title: Annotated[str | None, typer.Option(help="What is wrong, in a line.")] = None,
    source: Annotated[str, typer.Option(help="The address of the report.")] = "not reported yet",
    kind: Annotated[str, typer.Option(help="As kl-audit cases lists them (words of it).")] = "cancellation",
    out: Annotated[Path | None, typer.Option("-o", help="Write it here.  [default: ID.toml]")] = None,
) -> None:
    """Write a case file from a formula and inputs: the right result filled in, the wrong one as seen here."""
    from kl_audit.cases.write import Draft, new_case
    from kl_audit.errors import UsageError

    path = out or Path(f"{case_id}.toml")
    if str(path) != "-" and path.exists():
        raise UsageError(f"'{path}' is there already; name another file with -o.")
    draft = Draft(
        case_id, expr, tuple(at), quantity, truth, tuple(with_ or ()), output, wrt, element, dtype,
        tuple(backend or ()), tuple(mode or ()), title, source, kind,
    )  # fmt: skip
    text, lines = new_case(draft)
    if str(path) == "-":
        typer.echo(text, nl=False)
    else:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write '{path}': {error.strerror}.") from None
        lines = [*lines, f"wrote {path}; run it: kl-audit repro {path}"]
    for line in lines:
        typer.echo(line, err=True)


def _print(cases: list[Case]) -> None:
    width = max(len(c.id) for c in cases)
    for kind in dict.fromkeys(c.kind for c in sorted(cases, key=lambda c: c.kind)):
        typer.echo(kind)
        for c in cases:
            if c.kind == kind:
                typer.echo(f"  {c.id:<{width}}  {c.title}")
