"""The outcomes as one JSON document."""

from kl_audit.report.formats.base import Format, Options
from kl_audit.report.repro.schema import ReproReport


def write_json(report: ReproReport, options: Options) -> str:
    """Return the document."""
    return report.to_json() + "\n"


CASE_FORMAT = Format("json", write_json)
