"""Where in a TOML file a key stands: the parser says where its syntax is wrong, and no more."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TABLE = re.compile(r"^\s*(\[\[?)\s*([A-Za-z0-9_.\-]+)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*(?:"([^"]+)"|([A-Za-z0-9_\-]+))\s*(?:\.[^=]*)?=""")


def line_of(text: str, path: Sequence[str | int]) -> int:
    """Return the line (from 1) of the key at a path such as ``("part", 1, "expr")``.

    Where the key itself does not stand there, it is the line of the nearest table or key around it.
    """
    best = (0, 1)
    where: list[str | int] = []
    counts: dict[str, int] = {}
    quoted = ""
    for number, line in enumerate(text.splitlines(), 1):
        if quoted:  # within a text of several lines
            if quoted in line:
                quoted = ""
            continue
        table = _TABLE.match(line)
        key = _KEY.match(line)
        if table:
            where = list(table[2].split("."))
            if table[1] == "[[":
                counts[table[2]] = counts.get(table[2], -1) + 1
                where.append(counts[table[2]])
            here = where
        elif key:
            here = [*where, key[1] or key[2]]
        else:
            continue
        depth = len(here)
        if list(path[:depth]) == here and depth > best[0]:
            best = (depth, number)
        for mark in ('"""', "'''"):
            if line.count(mark) % 2:
                quoted = mark
    return best[1]
