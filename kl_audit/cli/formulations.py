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
    from kl_audit.quantities.vectors import VECTORS

    if quantity and quantity.lower() in VECTORS:
        _vectors(quantity, verbose)
        return
    asked = find_quantity(quantity) if quantity else None
    wanted = {asked.name, asked.base_name} if asked else set(QUANTITIES)
    for q in QUANTITIES.values():
        own = [f for f in FORMULATIONS if f.quantity == q.name]
        if q.name not in wanted or not own:
            continue
        typer.echo(f"{q.name}: {q.summary}")
        for f in own:
            only = f" ({', '.join(f.formats)} only)" if f.formats else ""
            typer.echo(f"  {f.name}{only}")
            typer.echo(f"      {f.formula}")
            typer.echo(f"      law: {f.law.name if f.law else 'none stated'}; source: {f.source}")
            if f.clamp:
                typer.echo(f"      held against its own objective: {f.clamp}")
            if verbose:
                _derivation(f.derivation)
    _vectors(quantity, verbose)
    lifted = [q.name for q in QUANTITIES.values() if q.base]
    typer.echo(f"The same formulations serve the quantities made from these: {', '.join(lifted)}.")


def _vectors(quantity: str | None, verbose: bool) -> None:
    """List the quantities of vectors, which ``audit`` knows, and their formulations."""
    from kl_audit.formulations.vectors import vector_formulations_of
    from kl_audit.quantities.vectors import VECTORS

    for v in VECTORS.values():
        if quantity and v.name != quantity.lower():
            continue
        inputs = ", ".join(i.name for i in v.inputs)
        typer.echo(f"{v.name} ({inputs}): {v.summary}")
        for f in vector_formulations_of(v.name):
            typer.echo(f"  {f.name}{' (sound)' if f.sound else ''}")
            typer.echo(f"      {f.formula}")
            typer.echo(f"      source: {f.source}")
            if verbose:
                _derivation(f.derivation)


def _derivation(text: str) -> None:
    typer.echo("".join(f"      | {line}\n" for line in text.splitlines()))
