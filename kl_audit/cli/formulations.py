"""``kl-audit formulations``: the ways of writing each quantity, with their laws."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    quantity: Annotated[str | None, typer.Option(help="Only those of one quantity.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the derivation of each law.")
    ] = False,
) -> None:
    """List the formulations with their formula, law and source."""
    from kl_audit.formulations import FORMULATIONS
    from kl_audit.quantities import QUANTITIES, find_quantity

    wanted = find_quantity(quantity).base_name if quantity else None
    for q in QUANTITIES.values():
        if q.base or (wanted and q.name != wanted):
            continue
        typer.echo(f"{q.name}: {q.summary}")
        for f in FORMULATIONS:
            if f.quantity != q.name:
                continue
            only = f" ({', '.join(f.formats)} only)" if f.formats else ""
            typer.echo(f"  {f.name}{only}")
            typer.echo(f"      {f.formula}")
            typer.echo(f"      law: {f.law.name if f.law else 'none stated'}; source: {f.source}")
            if f.clamp:
                typer.echo(f"      held against its own objective: {f.clamp}")
            if verbose:
                typer.echo("".join(f"      | {line}\n" for line in f.derivation.splitlines()))
    lifted = [q.name for q in QUANTITIES.values() if q.base]
    typer.echo(f"The same formulations serve the quantities made from these: {', '.join(lifted)}.")
