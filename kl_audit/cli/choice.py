"""What ``repro`` and ``cases`` share: the cases that come with the tool, and the reader's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kl_audit.cases.load import builtin, read_file, read_folder
from kl_audit.cases.model import Case
from kl_audit.errors import UsageError


@dataclass(frozen=True)
class Shelf:
    """The cases there are, and which of them are the reader's."""

    cases: tuple[Case, ...]
    own: frozenset[str]


def shelf(folders: list[Path], files: list[Path] = []) -> Shelf:  # noqa: B006 - it is not changed
    """Return built-in cases and those of the folders and files; raises UsageError for an id twice."""
    found = {c.id: (c, "the built-in cases") for c in builtin()}
    own = set()
    for path, cases in [(f, read_folder(f)) for f in folders] + [(f, (read_file(f),)) for f in files]:
        for case in cases:
            if case.id in found:
                raise UsageError(f"{path}: id '{case.id}' is one of {found[case.id][1]}; choose another.")
            found[case.id] = (case, str(path))
            own.add(case.id)
    return Shelf(tuple(sorted((c for c, _ in found.values()), key=lambda c: c.id)), frozenset(own))
