"""Where reports go: stdout, or files named ``format=path``."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kl_audit.errors import UsageError
from kl_audit.report.formats import Format, Options, find_output_format


@dataclass(frozen=True)
class Destination:
    """One format and where it goes; no path is stdout."""

    format: Format
    path: Path | None


def parse_destinations(
    specs: list[str], output: Path | None, find: Callable[[str], Format] = find_output_format
) -> list[Destination]:
    """Read ``--output-format`` (``json``, ``json=report.json``) and ``-o``; raises UsageError.

    Without a path of its own, one format may go to ``-o`` or to stdout.  ``find`` knows the formats.
    """
    found = []
    for spec in specs or ["text"]:
        name, _, path = spec.partition("=")
        if "=" in spec and not path:
            raise UsageError(f"--output-format '{spec}': no file after '='. Expected {name}=FILE.")
        to_file = path and path != "-"
        found.append(Destination(find(name), Path(path) if to_file else None))
    if output is not None and str(output) == "-":
        output = None
    loose = [d for d in found if d.path is None]
    if len(loose) > 1:
        names = ", ".join(d.format.name for d in loose)
        raise UsageError(f"{names} would all go to one place; name files: --output-format json=FILE.")
    if output is not None and not loose:
        raise UsageError(f"-o {output}: every output format has its own file already.")
    found = [Destination(d.format, d.path or output) for d in found]
    paths = [d.path.resolve() for d in found if d.path is not None]
    twice = next((p for p in paths if paths.count(p) > 1), None)
    if twice is not None:
        raise UsageError(f"two reports would go to '{twice}'; give each format its own file.")
    for d in found:
        if d.path is not None and (d.path.is_dir() or not d.path.parent.is_dir()):
            what = "is a directory" if d.path.is_dir() else "is in a directory that does not exist"
            raise UsageError(f"cannot write '{d.path}': it {what}.")
    return found


def write(report: Any, destinations: list[Destination], verbose: bool, quiet: bool) -> None:
    """Write the report everywhere; ``quiet`` keeps stdout to what a file format was asked for."""
    for d in destinations:
        if d.path is not None:
            try:
                d.path.write_text(d.format.write(report, Options(verbose, 100)), encoding="utf-8")
            except OSError as error:
                raise UsageError(f"cannot write '{d.path}': {error.strerror}.") from None
        elif not (quiet and d.format.name == "text"):
            if sys.stdout is None:
                raise UsageError("stdout is closed; name a file with -o FILE.")
            colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
            width = shutil.get_terminal_size((80, 24)).columns
            _to_stdout(d.format.write(report, Options(verbose, width, colour)))


def _to_stdout(text: str) -> None:
    """Write to stdout; a reader that went away (| head) changes nothing, a full disk is told."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit: let it do so into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageError(f"cannot write to stdout: {error.strerror}.") from None
