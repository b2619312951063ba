"""Findings and judgements: what is said about a row, and the exact figures behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from kl_audit.errors import OracleError
from kl_audit.formats import hex_float
from kl_audit.measure import Band, Witness
from kl_audit.oracle.exact import Undefined
from kl_audit.sweep import Row
from kl_audit.ulp import overflow_threshold, round_to_format, ulp_error


@dataclass(frozen=True)
class Finding:
    """One thing to tell the reader about a row."""

    code: str
    level: str  #: error: the row fails; note: told, not held against it
    message: str
    witness: Witness | None = None


@dataclass(frozen=True)
class BandVerdict:
    """A decade and how the law fared in it."""

    band: Band
    bound: float | None
    ratio: float | None
    verdict: str


@dataclass(frozen=True)
class LawVerdict:
    """How the law fared over the row."""

    name: str
    holds: bool
    constant: float | None  #: measured, over the decades where the law is not vacuous
    predicted: float | None  #: from the library function's own error, over the same decades
    library_error: float | None  #: E, in ulp
    blame: str | None
    pointwise_ratio: float | None = None  #: greatest error over pointwise bound, where not vacuous


@dataclass
class Judgement:
    """Everything that is said about a row."""

    verdict: str = "pass"
    reason: str | None = None
    findings: list[Finding] = field(default_factory=list)
    bands: list[BandVerdict] = field(default_factory=list)
    law: LawVerdict | None = None
    max_ulp: float = 0.0
    max_rel: float = 0.0
    core_rel: float = 0.0  #: the same over |x| >= 1e-6
    worst: list[tuple[float, Witness]] = field(default_factory=list)  #: exact errors, worst first
    unjudged: list[Witness] = field(default_factory=list)  #: of a short list: nan, infinite, undefined


def relative_to(row: Row) -> str:
    """Name the row, as every failure line begins."""
    return f"{row.block.what} {row.formulation.name} {row.block.fmt.name} {row.target}"


def at(row: Row, inputs: tuple[float, ...]) -> str:
    """Show inputs in hex and as bit patterns: ``x=0x1.8p-20 (0x35c00000)``."""
    names = ("x",) if len(inputs) == 1 else row.block.quantity.inputs
    fmt = row.block.fmt
    return ", ".join(f"{n}={hex_float(v)} ({fmt.to_bits(v)})" for n, v in zip(names, inputs, strict=True))


def line(row: Row, text: str, code: str, witness: Witness | None = None) -> str:
    """Return the one-line form of a finding: value, limit, witness in hex, code."""
    if witness is None:
        return f"{relative_to(row)}: {text} [{code}]"
    want = show_truth(row, witness.inputs)
    return (
        f"{relative_to(row)}: {text} at {at(row, witness.inputs)}: "
        f"got {hex_float(witness.got)}, want {want} [{code}]"
    )


def show_truth(row: Row, inputs: tuple[float, ...]) -> str:
    """Return the right result in hex, or ``no value`` where there is none."""
    try:
        want = expected(row, inputs)
    except OracleError:
        want = None
    return "no value" if want is None else hex_float(want)


def exact_error(row: Row, witness: Witness) -> tuple[float, float] | None:
    """Return (|ulp error|, relative error) at a witness by the exact oracle."""
    try:
        truth = row.truth_at(witness.inputs)
    except Undefined:
        return None
    if abs(truth) >= overflow_threshold(row.result) or not math.isfinite(witness.got):
        return None
    ulps = _to_float(abs(ulp_error(witness.got, truth, row.result)))
    if truth == 0:
        return ulps, math.inf if witness.got else 0.0
    return ulps, _to_float(abs((Fraction(witness.got) - truth) / truth))


def _to_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def expected(row: Row, inputs: tuple[float, ...]) -> float | None:
    """Return the correctly rounded result at any input, or None where there is no single one."""
    side = row.side
    if all(math.isfinite(x) for x in inputs):
        try:
            return round_to_format(row.truth_at(inputs), row.result)
        except Undefined:
            return None
    if len(inputs) > 1:
        return None
    if math.isnan(inputs[0]):
        return math.nan
    limit = side.limits[inputs[0] > 0]
    return None if math.isnan(limit) else limit
