"""From the rows of an audit to a report."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from kl_audit.audit.job import Job
from kl_audit.audit.log_ratio import Audited
from kl_audit.audit.remedies import Remedy
from kl_audit.audit.thresholds import Threshold
from kl_audit.audit.tried import CaseWitness, Tried
from kl_audit.audit.vectors import VectorAudited
from kl_audit.formats import Format, hex_float
from kl_audit.oracle.exact import decimal
from kl_audit.report.build import build_report, build_result
from kl_audit.report.schema import (
    FindingModel,
    GridModel,
    InputRoundingModel,
    Named,
    RemedyModel,
    Report,
    Result,
    Subject,
    ThresholdModel,
    WitnessModel,
)
from kl_audit.sweep import Row

#: Entries of a vector that a witness lists; of a longer one it says how many there are.
SHOWN = 16


def report_of(done: list[Audited | VectorAudited], job: Job, command: list[str], interrupted: bool) -> Report:
    """Assemble the report of an audit."""
    rows: list[tuple[Row | None, Result]] = [
        (d.row, _swept(d)) if isinstance(d, Audited) else (None, _tried(d)) for d in done
    ]
    facts = list(dict.fromkeys(fact for d in done for fact in d.facts))
    s = job.subject
    subject = Subject(name=s.name, text=s.text, file=s.file, line=s.line, facts=facts)
    return build_report(rows, command, job.seed, interrupted, subject)


def _swept(done: Audited) -> Result:
    result = build_result(done.row, done.judgement)
    result.role = "audited" if done.mine else "stock"
    result.thresholds = [_threshold(t) for t in done.thresholds]
    result.input_rounding = [InputRoundingModel(**vars(r)) for r in done.rounding]
    result.remedy = _remedy(done.remedy)
    return result


def _threshold(t: Threshold) -> ThresholdModel:
    return ThresholdModel(
        name=t.name, x=t.x, x_hex=hex_float(t.x), how=t.how, text=t.text,  # type: ignore[arg-type]
        got=t.got, truth=t.truth,
    )  # fmt: skip


def _remedy(remedy: Remedy | None) -> RemedyModel | None:
    if remedy is None:
        return None
    stock = remedy.formulation
    return RemedyModel(
        formulation=stock.name if stock else None,
        formula=stock.formula if stock else None,
        verdict=remedy.verdict,  # type: ignore[arg-type]
        max_ulp_error=remedy.max_ulp,
        max_rel_error=remedy.max_rel,
        audited_rel_error=remedy.was,
        text=remedy.text,
    )


def _tried(done: VectorAudited) -> Result:
    t = done.tried
    head: dict[str, Any] = {
        "quantity": t.problem.name,
        "output": t.output,
        "formulation": t.name,
        "backend": t.target.backend.name,
        "mode": t.target.mode,
        "device": t.target.device,
        "dtype": t.fmt.name,
        "grid": GridModel(kind="cases", points=t.points),
        "verdict": t.verdict,
        "reason": t.reason,
        "with_respect_to": t.by,
        "role": "audited" if done.mine else "stock",
        "result_dtype": t.result.name if t.result not in (None, t.fmt) and t.result else None,
    }
    findings = [
        FindingModel(code=f.code, level=f.level, message=f.message,  # type: ignore[arg-type]
                     witness=_witness(t, w) if (w := t.witnesses[f.code]) else None)
        for f in t.findings.values()
    ]  # fmt: skip
    if t.skipped is not None or t.failed is not None:
        return Result(**head, findings=findings)
    value = t.output == "value"
    return Result(
        **head,
        cases=t.cases,
        max_ulp_error=t.max_ulp if value else None,
        max_rel_error=t.max_rel,
        worst=_witness(t, t.worst) if t.worst else None,
        negatives=t.negatives if value else None,
        false_zeros=t.zeros,
        nonfinite_mismatches=t.nan + t.infinite,
        nan=t.nan,
        undefined=t.undefined,
        cosine=t.cosine,
        findings=findings,
        top=[_witness(t, t.worst)] if t.worst else [],
        thresholds=[_threshold(x) for x in done.thresholds],
        remedy=_remedy(done.remedy),
    )


def _witness(t: Tried, w: CaseWitness) -> WitnessModel:
    x: dict[str, Named] = {}
    hexes: dict[str, str | list[str]] = {}
    bits: dict[str, str | list[str]] = {}
    for name, given in w.case.inputs.items():
        values = np.ravel(np.asarray(given)).astype(np.float64).tolist()
        if len(values) > SHOWN:
            x[name] = hexes[name] = bits[name] = f"{len(values)} values"
            continue
        x[name] = values
        hexes[name] = [hex_float(v) for v in values]
        bits[name] = [_bits(t.fmt, v) for v in values]
    case = w.case.name + (f" [{w.index}]" if w.index else "")
    return WitnessModel(
        x=x, x_hex=hexes, x_bits=bits, got=w.got, got_hex=hex_float(w.got), truth=truth_text(w.truth),
        ulp_error=w.ulp, case=case or None,
    )  # fmt: skip


def truth_text(truth: Fraction | float | None) -> str | None:
    """Return 30 digits, ``inf``, or None where there is no value."""
    if isinstance(truth, Fraction):
        return decimal(truth)
    return None if truth is None or math.isnan(truth) else ("inf" if truth > 0 else "-inf")


def _bits(fmt: Format, value: float) -> str:
    return fmt.to_bits(value)
