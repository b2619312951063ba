"""The outcomes as JUnit XML: a suite for each case, a test for each row, failed where unexpected."""

from __future__ import annotations

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from kl_audit.report.formats.base import Format, Options
from kl_audit.report.repro import phrases
from kl_audit.report.repro.schema import CaseRow, ReproReport


def write_junit(report: ReproReport, options: Options) -> str:
    """Return the document."""
    document = JUnitXml("kl-audit repro")
    rows = phrases.by_case(report)
    for info in report.reports:
        suite = TestSuite(info.id)
        for row in rows[info.id]:
            suite.add_testcase(_test(row))
        document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]
    text: str = document.tostring().decode("utf-8")  # type: ignore[no-untyped-call]
    return f"{text}\n"


def _test(row: CaseRow) -> TestCase:
    live = f" {row.live}" if row.live else ""
    test = TestCase(f"{row.part} {row.dtype} {phrases.where(row)}{live}", classname=f"kl-audit.{row.id}")
    if row.outcome == "skipped":
        test.result = [Skipped(row.reason or "")]
    elif not row.as_expected:
        test.result = [Failure(phrases.line(row), row.outcome)]
    else:
        test.system_out = phrases.line(row)
    return test


CASE_FORMAT = Format("junit", write_junit)
