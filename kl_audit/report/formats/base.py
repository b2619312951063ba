"""What an output format is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Options:
    """How a formatter is to write."""

    verbose: bool = False
    width: int = 80
    colour: bool = False


@dataclass(frozen=True)
class Format:
    """A name, and a function from a report to text."""

    name: str
    write: Callable[[Any, Options], str]
