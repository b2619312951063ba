"""``kl-audit schema``: JSON Schemas of what the tool reads and writes."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def command(
    name: Annotated[str, typer.Argument(help="Which schema: report, repro or case.", show_default=False)],
) -> None:
    """Print a JSON Schema."""
    from kl_audit.cases.model import case_json_schema
    from kl_audit.errors import unknown
    from kl_audit.report.repro.schema import repro_json_schema
    from kl_audit.report.schema import report_json_schema

    schemas = {"report": report_json_schema, "repro": repro_json_schema, "case": case_json_schema}
    if name not in schemas:
        raise unknown("schema", name, list(schemas))
    typer.echo(json.dumps(schemas[name](), indent=2))
