"""A new case file from a formula and inputs: a bug report that runs, ready to attach."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tomli_w

from kl_audit.audit.at import parse_at
from kl_audit.callee.literals import parse_constants
from kl_audit.cases.find import find_kind
from kl_audit.cases.load import read_case
from kl_audit.cases.model import KINDS
from kl_audit.cases.rows import Row
from kl_audit.cases.run import Settings, run_case, shown
from kl_audit.errors import UsageError
from kl_audit.expression import parse
from kl_audit.selection import choose_targets

#: A relative error up to which a result is called right.
TOLERANCE = 0.01


@dataclass(frozen=True)
class Draft:
    """What the reader told of a case."""

    id: str
    expr: str
    at: tuple[str, ...]
    quantity: str | None = None
    truth: str | None = None
    constants: tuple[str, ...] = ()
    output: str = "value"
    wrt: str | None = None
    element: int | None = None
    dtype: str = "fp32"
    backends: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    title: str | None = None
    source: str = "not reported yet"
    kind: str = "cancellation"


def new_case(draft: Draft) -> tuple[str, list[str]]:
    """Return the text of a case file, and lines on what was seen; raises UsageError."""
    parse(draft.expr)
    if draft.output not in ("value", "gradient"):
        raise UsageError(f"unknown output '{draft.output}', expected value or gradient.")
    targets = choose_targets(draft.backends, draft.modes, "cpu")
    part: dict[str, Any] = {
        "name": draft.output,
        "quantity": draft.quantity,
        "truth": draft.truth,
        "expr": draft.expr,
        "with": parse_constants(list(draft.constants)) or None,
        "inputs": _inputs(draft.at),
        "dtype": draft.dtype,
        "backends": list(dict.fromkeys(t.backend.name for t in targets)),
        "modes": list(dict.fromkeys(t.mode for t in targets)),
        "output": draft.output,
        "wrt": draft.wrt,
        "element": draft.element,
        "reproduced_when": f"off by {TOLERANCE}",
    }
    data: dict[str, Any] = {
        "id": draft.id,
        "title": draft.title or f"{draft.expr} in {draft.dtype}",
        "source": draft.source,
        "kind": find_kind(draft.kind, KINDS),
        "about": "Say here, in a few sentences, what causes it.",
        "cure": "Say here what to write instead.",
        "part": [_without_none(part)],
    }
    rows = list(run_case(read_case(_text(data), "the new case"), Settings()))
    measured = [r for r in rows if r.seen is not None]
    if not measured:
        raise UsageError(f"nothing could be measured: {rows[0].reason}.")
    wrong = [r for r in measured if r.outcome == "reproduced"]
    if not wrong:
        worst = max((r.error or 0.0) for r in measured)
        raise UsageError(
            f"nothing is wrong here: the greatest relative error is {worst:.3g} (limit {TOLERANCE:g}) "
            f"in {', '.join(f'{r.backend}-{r.mode}' for r in measured)}; choose other inputs."
        )
    first = wrong[0]
    assert first.seen is not None
    part |= {
        "reported": f"{first.seen:.9g}",
        "reported_with": first.versions,
        "right": _right(first),
        "reproduced_when": _criterion(wrong),
        "expected": _expected([r for r in rows if r.outcome != "skipped"]),
    }
    data["part"] = [_without_none(part)]
    data["last_seen"] = _last_seen(wrong)
    text = _text(data)
    read_case(text, "the new case")
    return text, [_line(r) for r in rows]


def _inputs(at: tuple[str, ...]) -> dict[str, Any]:
    parse_at(at)
    found: dict[str, Any] = {}
    for item in at:
        left, _, right = item.partition("=")
        name, _, kind = (x.strip() for x in left.partition(":"))
        found[name] = {"values": right.strip(), "dtype": kind} if kind else right.strip()
    return found


def _without_none(part: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in part.items() if v is not None}


def _text(data: dict[str, Any]) -> str:
    return tomli_w.dumps(data)


def _right(row: Row) -> str | None:
    return None if row.truth is None else shown(row.truth)


def _criterion(wrong: list[Row]) -> str:
    """Return the plainest condition that all the wrong results fulfil."""
    seen = [r.seen for r in wrong if r.seen is not None]
    truth = wrong[0].truth
    if all(math.isnan(x) for x in seen):
        return "nan"
    if all(math.isinf(x) for x in seen):
        return "infinite"
    if truth is not None and truth >= 0 and all(x < 0 for x in seen):
        return "negative"
    if truth != 0 and all(x == 0 for x in seen):
        return "zero"
    return f"off by {TOLERANCE}"


def _expected(measured: list[Row]) -> str | dict[str, str]:
    """Return the outcomes as they are seen: one word where they are the same."""
    found = {f"{r.backend}-{r.mode}": str(r.outcome) for r in measured}
    return next(iter(found.values())) if len(set(found.values())) == 1 else found


def _last_seen(wrong: list[Row]) -> dict[str, str]:
    return {r.backend: r.versions[r.backend] for r in wrong if r.backend in r.versions}


def _line(row: Row) -> str:
    where = f"{row.backend}-{row.mode}"
    if row.seen is None:
        return f"{where}: {row.outcome}, {row.reason}"
    return f"{where}: {row.seen:.9g}, right {shown(row.truth)}"
