"""What ``kl-audit repro`` found, schema_version 1: a row for each part of a case, back end and mode."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kl_audit.report.schema import Model, Number, Tool

Outcome = Literal["reproduced", "fixed", "changed", "skipped"]


class CaseInfo(Model):
    """A public report, in a few sentences."""

    id: str
    title: str
    source: str
    kind: str
    date: str | None = None
    about: str
    cure: str
    last_seen: dict[str, str] = Field({}, description="versions on which it was last reproduced")


class CureModel(Model):
    """What a cure gives under the conditions of the row."""

    what: str = Field(description="a formula, a stock formulation, or a function")
    says: str | None = None
    seen: Number | None
    relative_error: Number | None
    cures: bool
    reason: str | None = Field(None, description="why it could not be measured")


class CaseRow(Model):
    """One part of a case on one back end in one mode."""

    id: str
    part: str
    says: str | None = None
    outcome: Outcome
    expected_outcome: Outcome | None = Field(description="null where the case does not say")
    as_expected: bool
    reason: str | None = None
    backend: str
    mode: str
    dtype: str
    quantity: str | None = Field(description="null: the truth is a formula")
    formula: str = Field(description="what computes: a formula, a stock formulation, or a function")
    inputs: str
    output: Literal["value", "gradient"]
    with_respect_to: str | None = None
    measure: str = Field(description="result: one element; else what is made of all")
    live: str | None = Field(None, description="the package whose own function this is")
    reported: str | None = None
    reported_with: dict[str, str] = Field({})
    reproduced_when: str
    as_reported: bool | None = Field(None, description="whether the reported digits came out")
    seen: Number | None = None
    seen_hex: str | None = None
    truth: str | None = Field(None, description="decimal, 30 digits; null where there is none")
    relative_error: Number | None = None
    value: Number | None = None
    value_truth: str | None = None
    gradient: Number | None = None
    gradient_truth: str | None = None
    blame: Literal["arithmetic", "formula", "both", "nothing"] | None = Field(
        None, description="nothing: right for these inputs, and no rounding"
    )
    code: str | None = None
    versions: dict[str, str] = Field({}, description="of the back end")
    cures: list[CureModel] = Field([])


class Counts(Model):
    """How many rows of each outcome, and how many are not as expected."""

    reproduced: int = 0
    fixed: int = 0
    changed: int = 0
    skipped: int = 0
    unexpected: int = 0


class ReproReport(Model):
    """A whole run of ``kl-audit repro``."""

    schema_version: Literal[1] = 1
    tool: Tool
    command: list[str]
    versions: dict[str, str]
    platform: dict[str, Any]
    summary: Counts
    reports: list[CaseInfo]
    cases: list[CaseRow]
    interrupted: bool = False

    def to_json(self) -> str:
        """Return strict JSON."""
        return self.model_dump_json(indent=2)


def repro_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of what ``kl-audit repro`` writes."""
    schema: dict[str, Any] = ReproReport.model_json_schema(mode="serialization")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "kl-audit repro, schema_version 1"
    return schema
