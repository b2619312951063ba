"""Where reports go: stdout, or files named ``format=path``."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from kl_audit.errors import UsageError
from kl_audit.report.formats import Format, Options, find_output_format
from kl_audit.report.schema import Report


@dataclass(frozen=True)
class Destination:
    """One format and where it goes; no path is stdout."""

    format: Format
    path: Path | None


def parse_destinations(specs: list[str], output: Path | None) -> list[Destination]:
    """Read ``--output-format`` (``json``, ``json=report.json``) and ``-o``; raises UsageError.

    Without a path of its own, one format may go to ``-o`` or to stdout.
    """
    found = []
    for spec in specs or ["text"]:
        name, _, path = spec.partition("=")
        if "=" in spec and not path:
            raise UsageError(f"--output-format '{spec}': no file after '='. Expected {name}=FILE.")
        found.append(Destination(find_output_format(name), Path(path) if path else None))
    loose = [d for d in found if d.path is None]
    if len(loose) > 1:
        names = ", ".join(d.format.name for d in loose)
        raise UsageError(f"{names} would all go to one place; name files: --output-format json=FILE.")
    if output is not None and not loose:
        raise UsageError(f"-o {output}: every output format has its own file already.")
    found = [Destination(d.format, d.path or output) for d in found]
    for d in found:
        if d.path is not None and (d.path.is_dir() or not d.path.parent.is_dir()):
            what = "is a directory" if d.path.is_dir() else "is in a directory that does not exist"
            raise UsageError(f"cannot write '{d.path}': it {what}.")
    return found


def write(report: Report, destinations: list[Destination], verbose: bool, quiet: bool) -> None:
    """Write the report everywhere; ``quiet`` keeps stdout to what a file format was asked for."""
    for d in destinations:
        if d.path is not None:
            try:
                d.path.write_text(d.format.write(report, Options(verbose, 100)), encoding="utf-8")
            except OSError as error:
                raise UsageError(f"cannot write '{d.path}': {error.strerror}.") from None
        elif not (quiet and d.format.name == "text"):
            colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
            width = shutil.get_terminal_size((80, 24)).columns
            sys.stdout.write(d.format.write(report, Options(verbose, width, colour)))
            sys.stdout.flush()
