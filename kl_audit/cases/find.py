"""Cases by id, alias or word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from kl_audit.cases.model import Case
from kl_audit.errors import UsageError

_GITHUB = re.compile(r"^https://github\.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)")


def aliases(case: Case) -> set[str]:
    """Return what else a case may be called: ``issue-1560``, ``pr-1560``, ``1560``, ``owner/repo#1560``."""
    found = _GITHUB.match(case.source)
    if not found:
        return set()
    repo, number = found[1].lower(), found[2]
    short = repo.rpartition("/")[2]
    return {
        number, f"#{number}", f"issue-{number}", f"pr-{number}", f"pull-{number}", f"{repo}#{number}",
        f"{short}#{number}", f"{short}-{number}", case.source.lower(),
    } - {case.id}  # fmt: skip


def find_case(name: str, cases: Sequence[Case]) -> Case:
    """Return the case with an id or alias; raises UsageError with the candidates."""
    wanted = name.lower().strip()
    for case in cases:
        if case.id == wanted:
            return case
    found = [c for c in cases if wanted in aliases(c)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"'{name}' may be any of {', '.join(c.id for c in found)}; name one.")
    every = [c.id for c in cases]
    close = difflib.get_close_matches(wanted, [*every, *(a for c in cases for a in aliases(c))], 3)
    hint = f"Did you mean {' or '.join(close)}?" if close else "kl-audit cases lists all."
    raise UsageError(f"no case '{name}' among {len(every)}. {hint}")


def choose(names: Sequence[str], kinds: Sequence[str], cases: Sequence[Case]) -> list[Case]:
    """Return the cases asked for, in order and once each; ``all`` is every one.  Raises UsageError."""
    chosen = list(cases) if "all" in names else [find_case(n, cases) for n in names]
    chosen = _once(chosen)
    if kinds:
        known = sorted({c.kind for c in cases})
        wanted = [find_kind(k, known) for k in kinds]
        chosen = [c for c in chosen if c.kind in wanted]
        if not chosen:
            raise UsageError(f"none of these cases is of the kind {', '.join(wanted)}.")
    return chosen


def _once(cases: Sequence[Case]) -> list[Case]:
    return list({c.id: c for c in cases}.values())


def find_kind(name: str, known: Sequence[str]) -> str:
    """Return the kind whose name contains the words given; raises UsageError."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    found = [k for k in known if name.lower() == k.lower()] or [
        k for k in known if words and all(w in k.lower() for w in words)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"kind '{name}' may be any of: {'; '.join(found)}.")
    raise UsageError(f"unknown kind '{name}'. Known: {'; '.join(known)}.")


def search(words: Sequence[str], cases: Sequence[Case]) -> list[Case]:
    """Return the cases that have every word in their id, title, kind, source, cause or formulas."""
    return [c for c in cases if all(w.lower() in _text(c) for w in words)]


def _text(case: Case) -> str:
    parts = [f"{p.name} {p.says} {p.quantity} {p.expr} {p.function} {p.dtype}" for p in case.part]
    return " ".join((case.id, case.title, case.kind, case.source, case.about, case.cure, *parts)).lower()
