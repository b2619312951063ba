"""What is kept of a public report: its source, the fault in a line, and the audits that show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

#: found: an audit fails because of it.  explained: the arithmetic is right, and the audit says so.
#: fixed: the versions that the tests pin no longer have it.  elsewhere: it needs a GPU, or a model.
Outcome = Literal["found", "explained", "fixed", "elsewhere"]


@dataclass(frozen=True)
class Shown:
    """One number of a report as the audit shows it, beside the right one.

    A row is named as in ``Run``.  ``right`` takes the inputs as stored (numbers, or lists of
    them) and computes with mpmath; it is the truth at every witness with that result.
    """

    row: str
    got: float
    want: float
    right: Callable[..., Any]
    digits: float = 1e-6  #: relative: how far ``got`` and ``want`` may be from the report's numbers


@dataclass(frozen=True)
class Run:
    """One audit.  Rows are named ``value``, ``value@jit``, ``gradient``, ``gradient:teacher``."""

    request: dict[str, Any]
    errors: tuple[str, ...] = ()  #: ``value KLA101``: a finding that fails the row
    notes: tuple[str, ...] = ()  #: ``value@jit KLA106``: one that does not
    passes: tuple[str, ...] = ()  #: rows that pass
    absent: tuple[str, ...] = ()  #: codes that the row must not have
    shows: tuple[Shown, ...] = ()


@dataclass(frozen=True)
class Report:
    """One public report."""

    id: str
    url: str
    kind: str
    statement: str
    runs: tuple[Run, ...] = ()
    outcome: Outcome = "found"
    reason: str | None = None  #: of every outcome but found


def run(
    what: str,
    *,
    errors: str = "",
    notes: str = "",
    passes: str = "",
    absent: str = "",
    shows: tuple[Shown, ...] = (),
    **request: Any,
) -> Run:
    """Return an audit of a formula, or of ``reports.functions:name`` where ``what`` begins with a colon.

    Lists are texts: ``errors="value KLA101, gradient KLA401"``, ``at="d=1e-6 r=2"``.
    """
    key = {"target": f"reports.functions{what}"} if what.startswith(":") else {"target": None, "expr": what}
    for name in ("at", "dtypes", "backends", "modes", "with_"):
        if name in request:
            request[name] = tuple(request[name].split())
    defaults = {"backends": ("torch",), "modes": ("eager",), "explain": False}
    texts = (tuple(t.strip() for t in text.split(",") if t.strip())
             for text in (errors, notes, passes, absent))  # fmt: skip
    return Run(defaults | key | request, *texts, shows)
