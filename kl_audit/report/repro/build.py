"""From the rows of cases to a report."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kl_audit import __version__
from kl_audit.cases.model import Case, Made, Part, Subject
from kl_audit.cases.rows import Cured, Row
from kl_audit.formats import find_format, hex_float
from kl_audit.report.audited import truth_text
from kl_audit.report.build import versions
from kl_audit.report.repro.schema import CaseInfo, CaseRow, Counts, CureModel, ReproReport
from kl_audit.report.schema import Tool

#: Inputs are shown in as many characters.
SHOWN = 72


def repro_report(
    cases: Sequence[Case], rows: Sequence[Row], command: list[str], interrupted: bool = False
) -> ReproReport:
    """Assemble the report."""
    outcomes = Counter(str(r.outcome) for r in rows)
    shown = {r.case.id for r in rows}
    return ReproReport(
        tool=Tool(version=__version__),
        command=command,
        versions=versions({r.backend for r in rows}),
        platform={
            "system": platform.system(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        },
        summary=Counts(**outcomes, unexpected=sum(not r.as_expected for r in rows)),
        reports=[_info(c) for c in cases if c.id in shown],
        cases=[_row(r) for r in rows],
        interrupted=interrupted,
    )


def _info(case: Case) -> CaseInfo:
    return CaseInfo(
        id=case.id, title=case.title, source=case.source, kind=case.kind, date=case.date,
        about=_one_line(case.about), cure=_one_line(case.cure), last_seen=case.last_seen,
    )  # fmt: skip


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _row(row: Row) -> CaseRow:
    part = row.part
    return CaseRow(
        id=row.case.id, part=part.name, says=part.says, as_expected=row.as_expected,
        expected_outcome=row.expected,  # type: ignore[arg-type]
        dtype=find_format(part.dtype).name, quantity=part.quantity, formula=formula(part),
        inputs=inputs(part), output=part.output,
        with_respect_to=part.wrt if part.output == "gradient" else None, measure=part.measure,
        reported=None if part.reported is None else str(part.reported), reported_with=part.reported_with,
        reproduced_when=part.reproduced_when,
        seen_hex=None if row.seen is None else hex_float(row.seen),
        truth=truth_text(row.truth), relative_error=row.error, value_truth=truth_text(row.value_truth),
        gradient_truth=truth_text(row.gradient_truth), cures=[_cure(c) for c in row.cures],
        backend=row.backend, mode=row.mode, outcome=row.outcome, reason=row.reason, versions=row.versions,
        as_reported=row.as_reported, seen=row.seen, code=row.code, value=row.value, gradient=row.gradient,
        live=row.live, blame=row.blame,  # type: ignore[arg-type]
    )  # fmt: skip


def formula(subject: Subject) -> str:
    """Return what computes, in a word or a formula, its constants put beside it."""
    text = subject.expr or subject.formulation or subject.function or "-"
    constants = getattr(subject, "with_", {})
    told = ", ".join(f"{n} = {v}" for n, v in constants.items())
    return f"{text} ({told})" if told else text


def inputs(part: Part) -> str:
    """Return the inputs as the case file has them, cut where they are long."""
    parts = []
    for name, value in part.inputs.items():
        if isinstance(value, Made):
            told = value.model_dump(exclude_none=True, exclude_defaults=True)
            text = _numbers(told.pop("values")) if "values" in told else ""
            more = ", ".join(f"{k} {v}" for k, v in told.items())
            text = f"{text} ({more})" if text else f"({more})"
        else:
            text = _numbers(value)
        parts.append(f"{name} = {text}")
    text = ", ".join(parts)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _numbers(value: Any) -> str:
    return ",".join(str(x) for x in value) if isinstance(value, list) else str(value)


def _cure(cured: Cured) -> CureModel:
    return CureModel(
        what=formula(cured.cure), says=cured.cure.says, seen=cured.seen, relative_error=cured.error,
        cures=cured.cures, reason=cured.reason,
    )  # fmt: skip
