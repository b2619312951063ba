"""``kl-audit schema``: JSON Schemas of what the tool reads and writes."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def command(
    name: Annotated[str, typer.Argument(help="Which schema: report.", show_default=False)],
) -> None:
    """Print a JSON Schema."""
    from kl_audit.errors import unknown
    from kl_audit.report.schema import report_json_schema

    schemas = {"report": report_json_schema}
    if name not in schemas:
        raise unknown("schema", name, list(schemas))
    typer.echo(json.dumps(schemas[name](), indent=2))
