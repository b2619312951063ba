"""Back ends: where an expression runs, in which execution modes, on which devices.

Adding one is adding a module here that defines ``BACKEND``; nothing imports a framework until it is
asked for.
"""

from __future__ import annotations

import sys

from kl_audit.backends.base import Backend, CandidateError, Evaluate, EvaluateArrays, Mode, Unavailable
from kl_audit.discovery import collect
from kl_audit.errors import unknown

#: Every back end, by name, NumPy first.
BACKENDS: dict[str, Backend] = {
    b.name: b for b in sorted(collect(sys.modules[__name__], "BACKEND"), key=lambda b: (b.rank, b.name))
}


def find_backend(name: str) -> Backend:
    """Return the back end called ``name``; raises UsageError with the known names."""
    try:
        return BACKENDS[name.lower()]
    except KeyError:
        raise unknown("backend", name, list(BACKENDS)) from None


__all__ = [
    "BACKENDS",
    "Backend",
    "CandidateError",
    "Evaluate",
    "EvaluateArrays",
    "Mode",
    "Unavailable",
    "find_backend",
]
