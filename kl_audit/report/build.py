"""From measured rows and their judgements to a report."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from kl_audit import __version__
from kl_audit.backends import BACKENDS, Unavailable
from kl_audit.errors import OracleError
from kl_audit.findings import Judgement
from kl_audit.formats import hex_float
from kl_audit.measure import HISTOGRAM_EDGES, Witness
from kl_audit.oracle.exact import PRINTED_BITS, Undefined, decimal
from kl_audit.report.schema import (
    BandModel,
    FindingModel,
    GridModel,
    HistogramModel,
    LawModel,
    Named,
    Report,
    Result,
    Subject,
    Summary,
    Tool,
    WitnessModel,
)
from kl_audit.sweep import Row


def build_result(row: Row, judgement: Judgement) -> Result:
    """Return a row as the schema has it."""
    block, tally = row.block, row.tally
    head: dict[str, Any] = {
        "quantity": block.quantity.name,
        "output": block.output,
        "formulation": row.formulation.name,
        "backend": row.target.backend.name,
        "mode": row.target.mode,
        "device": row.target.device,
        "dtype": block.fmt.name,
        "grid": GridModel(kind=block.grid.kind, points=tally.points),
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "with_respect_to": block.by,
        "result_dtype": row.result.name if row.result != block.fmt else None,
        "objective": str(row.formulation.clamp) if row.formulation.clamp else None,
    }
    findings = [
        FindingModel(
            code=f.code, level=f.level, message=f.message,  # type: ignore[arg-type]
            witness=_witness(row, f.witness) if f.witness else None,
        )
        for f in judgement.findings
    ]  # fmt: skip
    if row.skipped is not None or row.failed is not None:
        return Result(**head, findings=findings)
    value = block.output == "value"
    law = judgement.law
    return Result(
        **head,
        max_ulp_error=judgement.max_ulp,
        max_rel_error=judgement.max_rel,
        worst=_witness(row, judgement.worst[0][1], judgement.worst[0][0])
        if judgement.worst
        else None,
        negatives=tally.negatives.n if value and block.quantity.nonnegative else None,
        false_zeros=tally.false_zeros.n,
        nonfinite_mismatches=tally.nonfinite.n,
        nonmonotone=tally.nonmonotone.n if value and row.objective.valley else None,
        nan=tally.nan.n,
        wrong_zero_signs=tally.zero_signs.n,
        flushed=tally.flushed.n,
        undefined=tally.undefined,
        bands=[
            BandModel(
                lo=v.band.lo, hi=v.band.hi, points=v.band.points, max_rel_error=v.band.max_rel,
                max_ulp_error=v.band.max_ulp, law_bound=v.bound, law_ratio=v.ratio,
                verdict=v.verdict,  # type: ignore[arg-type]
            )
            for v in judgement.bands
        ],
        law=LawModel(
            name=law.name, holds=law.holds, constant=law.constant,
            predicted_constant=law.predicted, library_error=law.library_error,
            blame=law.blame,  # type: ignore[arg-type]
            pointwise_ratio=law.pointwise_ratio,
        )
        if law
        else None,
        findings=findings,
        top=[
            *(_witness(row, w, size) for size, w in judgement.worst),
            *(_witness(row, w) for w in judgement.unjudged),
        ],
        histogram=HistogramModel(
            edges=HISTOGRAM_EDGES,
            negative=tally.histogram[0].tolist(),
            positive=tally.histogram[1].tolist(),
        ),
    )  # fmt: skip


def _witness(row: Row, witness: Witness, size: float | None = None) -> WitnessModel:
    fmt, names = row.block.fmt, row.block.quantity.inputs
    try:
        truth = decimal(row.truth_at(witness.inputs, PRINTED_BITS))
    except (Undefined, OracleError, ValueError, OverflowError):
        truth = None
    values: dict[str, Named] = dict(zip(names, witness.inputs, strict=True))
    hexes: dict[str, str | list[str]] = {n: hex_float(v) for n, v in zip(names, witness.inputs, strict=True)}
    bits: dict[str, str | list[str]] = {n: fmt.to_bits(v) for n, v in zip(names, witness.inputs, strict=True)}
    single = len(names) == 1
    return WitnessModel(
        x=witness.inputs[0] if single else values,
        x_hex=hex_float(witness.inputs[0]) if single else hexes,
        x_bits=fmt.to_bits(witness.inputs[0]) if single else bits,
        got=witness.got,
        got_hex=hex_float(witness.got),
        truth=truth,
        ulp_error=size,
        case=None,
    )


def summarise(results: list[Result]) -> Summary:
    """Count the verdicts."""
    counts = Counter(r.verdict for r in results)
    return Summary(**{v: counts[v] for v in ("pass", "fail", "vacuous", "skipped")})


def versions(used: set[str]) -> dict[str, str]:
    """Return the versions of the oracle's libraries and of the back ends in use."""
    found = {n: metadata.version(n) for n in ("mpmath", "python-flint", "numpy", "ml_dtypes")}
    for name in sorted(used):
        try:
            found |= BACKENDS[name].versions()
        except Unavailable:
            continue
    return found


def platform_facts(rows: list[Row]) -> dict[str, object]:
    """Return the machine, and the probed flush-to-zero of each back end, mode and format."""
    flush = {
        f"{row.target} {row.block.fmt.name}": str(row.flushing) for row in rows if row.flushing is not None
    }
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "subnormals": flush,
    }


def build_report(
    rows: Sequence[tuple[Row | None, Result]],
    command: list[str],
    seed: int,
    interrupted: bool = False,
    subject: Subject | None = None,
) -> Report:
    """Assemble a report; a result that no swept row stands behind comes with None."""
    results = [r for _, r in rows]
    return Report(
        tool=Tool(version=__version__),
        command=command,
        seed=seed,
        versions=versions({r.backend for r in results}),
        platform=platform_facts([row for row, _ in rows if row is not None]),
        summary=summarise(results),
        results=results,
        interrupted=interrupted,
        subject=subject,
    )
