"""Finding codes: every code that is used is explained, in the registry."""

from __future__ import annotations

import re
from pathlib import Path

import kl_audit
from kl_audit.codes import CODES


def test_every_code_in_the_source_is_explained():
    """A code that a message can carry stands in the registry."""
    root = Path(kl_audit.__file__).parent
    used = set()
    for path in root.rglob("*.py"):
        if path.name != "codes.py":
            used |= set(re.findall(r'"(KLA\d{3})"', path.read_text(encoding="utf-8")))
    assert {"KLA001", "KLA101", "KLA301", "KLA401", "KLA902"} <= used
    assert used <= set(CODES)


def test_codes_are_in_order_and_say_something():
    """The registry is sorted and each entry is a phrase."""
    assert list(CODES) == sorted(CODES)
    assert all(len(text) > 10 for text in CODES.values())
