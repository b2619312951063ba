"""One JSON object a line: the report's head without results, then every result."""

from kl_audit.report.formats.base import Format, Options
from kl_audit.report.schema import Report


def write_jsonl(report: Report, options: Options) -> str:
    """Return the lines."""
    head = report.model_copy(update={"results": []}).to_json(indent=None)
    return "\n".join([head, *(r.model_dump_json() for r in report.results)]) + "\n"


FORMAT = Format("jsonl", write_jsonl)
