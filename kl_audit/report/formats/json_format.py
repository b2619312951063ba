"""The report as one JSON document."""

from kl_audit.report.formats.base import Format, Options
from kl_audit.report.schema import Report


def write_json(report: Report, options: Options) -> str:
    """Return the document."""
    return report.to_json() + "\n"


FORMAT = Format("json", write_json)
