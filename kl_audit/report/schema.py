"""The report, schema_version 1.  Non-finite numbers are strings, so that the file is strict JSON."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

SCHEMA_VERSION = 1


def _strict(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


#: A number, or "inf", "-inf" or "nan".
Number = Annotated[float, PlainSerializer(_strict, return_type=float | Literal["inf", "-inf", "nan"])]
Verdict = Literal["pass", "fail", "vacuous", "skipped"]


class Model(BaseModel):
    """Closed: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid")


#: A named input: a number, a short vector, or in words what a long one is.
Named = Number | list[Number] | str


class WitnessModel(Model):
    """One input and its result.  ``x`` holds the named inputs where there are several."""

    x: Number | dict[str, Named]
    x_hex: str | dict[str, str | list[str]]
    x_bits: str | dict[str, str | list[str]]
    got: Number
    got_hex: str
    truth: str | None = Field(description="decimal, 30 digits; null where there is none")
    ulp_error: Number | None = None
    case: str | None = Field(None, description="the name of the case, for inputs that are vectors")


class BandModel(Model):
    """One decade of |log-ratio|."""

    lo: Number
    hi: Number
    points: int
    max_rel_error: Number
    max_ulp_error: Number
    law_bound: Number | None = Field(description="relative; in ulp for a law in ulp")
    law_ratio: Number | None = Field(description="greatest error over bound")
    verdict: Verdict


class LawModel(Model):
    """The formulation's error law and how it fared."""

    name: str
    holds: bool
    constant: Number | None = Field(description="measured C, over decades that are not vacuous")
    predicted_constant: Number | None = Field(description="from E; 4E for the expm1 form")
    library_error: Number | None = Field(description="E: worst ulp error of the library function")
    blame: Literal["formulation", "library"] | None
    pointwise_ratio: Number | None = Field(
        description="greatest error over the pointwise bound, which holds for every x; "
        "for expm1 u (1 + |expm1(x)| / k3(x)); over decades that are not vacuous"
    )


class FindingModel(Model):
    """Something to tell about a row; a row with a finding of level error fails."""

    code: str
    level: Literal["error", "note"]
    message: str
    witness: WitnessModel | None


class ThresholdModel(Model):
    """A log-ratio (or a count of entries) at which the behaviour changes."""

    name: str = Field(description="accurate-1%, first-inf, first-nan, first-zero, wrong-from, stall")
    x: Number
    x_hex: str
    how: Literal["exhaustive", "bisection", "search"]
    text: str
    got: Number | None
    truth: Number | None


class InputRoundingModel(Model):
    """Relative errors in one decade of |d|: what rounding the inputs did, and what the formula added."""

    lo: Number
    hi: Number
    points: int
    input_median: Number
    input_max: Number
    formula_median: Number
    formula_max: Number


class RemedyModel(Model):
    """The stock formulation that passes under the same conditions, and how well."""

    formulation: str | None = Field(description="null where none passes")
    formula: str | None
    verdict: Verdict | None
    max_ulp_error: Number | None
    max_rel_error: Number | None
    audited_rel_error: Number | None = Field(description="of what it replaces, over the same inputs")
    text: str


class HistogramModel(Model):
    """Counts of ulp errors: within [0, edges[0]], then [edges[i], edges[i+1]), the last open."""

    edges: list[float]
    negative: list[int]
    positive: list[int]


class GridModel(Model):
    """What was measured on."""

    kind: str
    points: int


class Result(Model):
    """One row."""

    quantity: str
    output: Literal["value", "gradient"]
    formulation: str
    backend: str
    mode: str
    device: str
    dtype: str
    grid: GridModel
    verdict: Verdict
    reason: str | None
    max_ulp_error: Number | None = None
    max_rel_error: Number | None = Field(
        None, description="over points whose truth is a normal number of the format"
    )
    worst: WitnessModel | None = None
    negatives: int | None = Field(None, description="null where the quantity may be negative")
    false_zeros: int | None = None
    nonfinite_mismatches: int | None = None
    nonmonotone: int | None = Field(None, description="null where nothing monotone is computed")
    nan: int | None = Field(None, description="of the mismatches, NaN where the truth is a number")
    wrong_zero_signs: int | None = None
    flushed: int | None = Field(
        None, description="zeros for subnormal truths on a back end that flushes; in no maximum"
    )
    undefined: int | None = Field(None, description="points where the objective has no derivative")
    bands: list[BandModel] = []
    law: LawModel | None = None
    findings: list[FindingModel] = []
    top: list[WitnessModel] = Field([], description="the worst points, worst first")
    histogram: HistogramModel | None = None
    with_respect_to: str | None = Field(
        None, description="the input that a gradient is taken by, where there are several"
    )
    result_dtype: str | None = Field(None, description="where it is not the inputs' dtype")
    objective: str | None = Field(None, description="the clamps of the objective, where it has any")
    role: Literal["audited", "stock"] = Field("stock", description="audited: the reader's own")
    cases: int | None = Field(None, description="how many cases of vectors were tried")
    cosine: Number | None = Field(None, description="least cosine with the true gradient, over cases")
    thresholds: list[ThresholdModel] = []
    input_rounding: list[InputRoundingModel] = []
    remedy: RemedyModel | None = None


class Subject(Model):
    """What was audited."""

    name: str
    text: str = Field(description="the expression, or package.module:function")
    file: str | None = None
    line: int | None = None
    facts: list[str] = Field([], description="what was noticed when it was called")


class Tool(Model):
    """Who made the report."""

    name: Literal["kl-audit"] = "kl-audit"
    version: str


class Summary(Model):
    """How many rows of each verdict.  The key is ``pass``."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    pass_: int = Field(0, alias="pass")
    fail: int = 0
    vacuous: int = 0
    skipped: int = 0


class Report(Model):
    """A whole run, and the command that makes it again."""

    schema_version: Literal[1] = 1
    tool: Tool
    command: list[str]
    seed: int
    versions: dict[str, str]
    platform: dict[str, Any]
    summary: Summary
    results: list[Result]
    interrupted: bool = False
    subject: Subject | None = Field(None, description="of an audit: the reader's function")

    def to_json(self, indent: int | None = 2) -> str:
        """Return strict JSON."""
        return self.model_dump_json(by_alias=True, indent=indent)


def report_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a report."""
    schema: dict[str, Any] = Report.model_json_schema(mode="serialization")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "kl-audit report, schema_version 1"
    return schema
