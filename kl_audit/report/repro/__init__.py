"""The report of ``kl-audit repro``; each format is a module that defines ``CASE_FORMAT``."""

from __future__ import annotations

import sys

from kl_audit.discovery import collect
from kl_audit.errors import unknown
from kl_audit.report.formats.base import Format

CASE_FORMATS: dict[str, Format] = {f.name: f for f in collect(sys.modules[__name__], "CASE_FORMAT")}


def find_case_format(name: str) -> Format:
    """Return the output format called ``name``; raises UsageError with the known names."""
    try:
        return CASE_FORMATS[name.lower()]
    except KeyError:
        raise unknown("output format", name, sorted(CASE_FORMATS)) from None
