"""What a case file holds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Number = int | float | str
#: ``fixed``: right here, though reported wrong.  ``changed``: neither as reported nor right.
Outcome = Literal["reproduced", "fixed", "changed", "skipped"]
Output = Literal["value", "gradient"]
#: What is made of the result and its truth: ``measures`` says how.
MeasureName = Literal[
    "result", "negatives", "zeros", "nonfinite", "max_rel", "cosine", "norm_ratio", "mode_gap"
]  # fmt: skip
KINDS = (
    "cancellation near zero",
    "overflow, inf and NaN",
    "low-precision log-probabilities",
    "log-softmax, tail mass",
    "masks and sums",
    "entropy, JSD",
    "compilers",
    "library functions",
    "gradient of the estimator",
    "preference-loss ratios",
    "TF32, autocast",
    "estimator tables",
)


class Strict(BaseModel):
    """Closed: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Made(Strict):
    """An input of a type of its own, or one that is made: normal draws, or log-spaced magnitudes."""

    values: str | list[Number] | None = Field(None, description="numbers; 'VALUE*N' is N of them")
    dtype: str | None = Field(None, description="fp64, fp32, fp16, bf16, int or bool; default: the part's")
    normal: tuple[float, float] | None = Field(None, description="mean and standard deviation of draws")
    logspace: tuple[float, float] | None = Field(None, description="least and greatest magnitude")
    signs: Literal["plus", "both"] = Field("plus", description="of a log-spaced input: -x beside each x")
    count: int | None = Field(None, ge=1, le=1_000_000, description="how many are made")
    seed: int = Field(0, ge=0, description="of the draws")
    near: str | None = Field(None, description="add the draws to this input, given before")


Input = int | float | str | list[Number] | Made


class Subject(Strict):
    """What computes: exactly one of a formula, a stock formulation and an importable function."""

    expr: str | None = Field(None, description="a formula in the grammar of kl-audit audit --expr")
    formulation: str | None = Field(None, description="a stock formulation of the part's quantity")
    function: str | None = Field(None, description="module:function, called with the inputs by name")


class Cure(Subject):
    """What to write instead; measured under the same conditions."""

    says: str | None = Field(None, description="why, in a phrase")


class Part(Subject):
    """One number of a report: how it comes about, and what is right."""

    name: str = Field(description="a short name, unique in the case")
    says: str | None = Field(None, description="what the report says, in a sentence of our own")
    quantity: str | None = Field(None, description="what it ought to compute: a stock quantity")
    truth: str | None = Field(None, description="the same as a formula, in exact arithmetic; default: expr")
    with_: dict[str, Any] = Field({}, alias="with", description="constants of the formula or function")
    inputs: dict[str, Input] = Field(description="decimal or hexadecimal numbers, in order")
    dtype: str = Field("fp32", description="of the inputs that do not state their own")
    backends: list[str] = Field(["numpy", "torch", "jax"], min_length=1)
    modes: list[str] = Field(["eager", "jit"], min_length=1, description="eager, compile, jit")
    output: Output = "value"
    wrt: str | None = Field(None, description="the input of the gradient; default: the first")
    element: int | None = Field(None, ge=0, description="which element of the result, or of the gradient")
    measure: MeasureName = "result"
    reported: Number | None = Field(None, description="the wrong number, as the report has it")
    reported_with: dict[str, str] = Field({}, description="its versions: {torch = '2.13.0'}")
    right: Number | None = Field(None, description="the right number, held against the certified truth")
    reproduced_when: str = Field(
        "as reported",
        description="as reported, negative, zero, nan, infinite, non-finite, off by X, above X or below X",
    )
    tolerance: float = Field(0.01, gt=0, description="relative error up to which a result is fixed")
    expected: str | dict[str, str] = Field(
        "reproduced", description="the outcome, or by selector: {'torch-compile >=2.14' = 'fixed', '*' = ...}"
    )
    needs: str | None = Field(None, description="what is not to be had on a CPU; the part is then skipped")
    cure: list[Cure] = []

    @field_validator("cure", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value


class Live(Strict):
    """The framework's own function, called with a part's inputs where its package is installed."""

    part: str = Field(description="the part that it is put beside")
    package: str = Field(description="the name of the distribution: google-tunix")
    file: str = Field(description="the file in it: tunix/rl/common.py")
    function: str = Field(description="the function, or Class.method of a static method")
    backend: str
    args: dict[str, str] = Field(description="parameter = input")
    with_: dict[str, Any] = Field({}, alias="with", description="constant arguments")
    inputs: dict[str, Input] = Field({}, description="where its inputs are others than the part's")
    shape: list[int] = Field([-1], description="of its arrays, with one -1: [1, -1]")
    dtype: str | None = Field(None, description="default: the part's")
    take: int | str | None = Field(None, description="which part of a tuple or dict is the result")


class Case(Strict):
    """One public report."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", description="repo-number: tunix-1560")]
    title: str
    source: str = Field(description="the address of the report, or what it is")
    kind: str = Field(description=f"one of: {'; '.join(KINDS)}")
    date: str | None = Field(None, description="YYYY-MM-DD, or YYYY-MM")
    about: str = Field(description="the cause, in a few plain sentences")
    cure: str = Field("", description="what to do, in a few plain sentences")
    last_seen: dict[str, str] = Field({}, description="versions on which it was last reproduced")
    part: list[Part] = Field(min_length=1)
    live: list[Live] = []


def case_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a case file."""
    schema: dict[str, Any] = Case.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "kl-audit case file"
    return schema
