"""Errors of the user's function, told with the place where they were raised."""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType

from kl_audit.backends.base import CandidateError, describe_error

#: Where an object lies in memory, which differs from run to run.
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def place_of(error: BaseException, file: str | None) -> str | None:
    """Return ``file.py:12``, the innermost line of ``file`` in an error's traceback, if it is there."""
    found: str | None = None
    step: TracebackType | None = error.__traceback__
    while step is not None and file is not None:
        if step.tb_frame.f_code.co_filename == file:
            found = f"{Path(file).name}:{step.tb_lineno}"
        step = step.tb_next
    return found


def candidate_error(error: BaseException, file: str | None) -> CandidateError:
    """Return what a function raised as ``raised TypeError: ... (at file.py:12)``."""
    place = place_of(error, file)
    said = ADDRESS.sub("", describe_error(error))
    return CandidateError(f"raised {said}" + (f" (at {place})" if place else ""))
