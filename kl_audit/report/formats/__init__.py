"""Output formats: each module defines ``FORMAT``; a formatter returns a string and does no IO."""

from __future__ import annotations

import sys

from kl_audit.discovery import collect
from kl_audit.errors import unknown
from kl_audit.report.formats.base import Format, Options

FORMATS: dict[str, Format] = {f.name: f for f in collect(sys.modules[__name__], "FORMAT")}


def find_output_format(name: str) -> Format:
    """Return the output format called ``name``; raises UsageError with the known names."""
    try:
        return FORMATS[name.lower()]
    except KeyError:
        raise unknown("output format", name, sorted(FORMATS)) from None


__all__ = ["FORMATS", "Format", "Options", "find_output_format"]
