"""Values given on the command line, ``name=value``, read without evaluating anything."""

from __future__ import annotations

import ast
import warnings
from typing import Any

from kl_audit.errors import UsageError

#: What is read as a number or a constant whatever its case.
WORDS: dict[str, Any] = {
    "none": None, "null": None, "true": True, "false": False,
    "inf": float("inf"), "+inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"),
}  # fmt: skip


def parse_value(text: str) -> Any:
    """Return a Python literal (number, string, list, tuple, dict, True, None), else the bare text.

    ``none``, ``true``, ``inf`` and the like are read in any case; quotes keep them strings.
    Raises UsageError for a quote or a bracket that is not closed.
    """
    text = text.strip()
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes and odd numbers
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        if text[:1] in tuple("'\"[({"):
            raise UsageError(f"cannot read the value {text}: not a Python literal.") from None
    return text


def parse_constants(items: list[str]) -> dict[str, Any]:
    """Return the constants of ``--with name=value`` items; raises UsageError."""
    constants: dict[str, Any] = {}
    for item in items:
        name, equals, value = item.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise UsageError(f"--with '{item}' is not of the form name=value.")
        if name in constants:
            raise UsageError(f"--with gives '{name}' twice.")
        constants[name] = parse_value(value)
    return constants
