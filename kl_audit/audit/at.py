"""Inputs given on the command line: ``d=0,200``, ``mask:bool=1,0``, ``teacher:bf16=-8,-7.5``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kl_audit.errors import UsageError
from kl_audit.formats import Format, find_format
from kl_audit.quantities.vector_base import Case

FORM = "write NAME=1,0.5,-inf, with NAME:bf16=..., NAME:int=... or NAME:bool=... for another type"
_TRUE, _FALSE = ("1", "true"), ("0", "false")


@dataclass(frozen=True)
class Given:
    """The inputs of one case as the reader gave them."""

    real: dict[str, tuple[float, ...]]
    other: dict[str, Any] = field(default_factory=dict)  #: indices and masks, as arrays
    dtypes: dict[str, Format] = field(default_factory=dict)  #: of inputs with their own

    def renamed(self, names: dict[str, str]) -> Given:
        """Return the same inputs under other names."""
        real, other, dtypes = (
            {names.get(n, n): v for n, v in part.items()} for part in (self.real, self.other, self.dtypes)
        )
        return Given(real, other, dtypes)  # type: ignore[arg-type]

    def case(self, fmt: Format) -> Case:
        """Return the case, its values as the format (or their own) stores them."""
        inputs: dict[str, Any] = {
            n: self.dtypes.get(n, fmt).cast(v).astype(np.float64) for n, v in self.real.items()
        }
        return Case("", inputs | self.other)


def parse_at(items: tuple[str, ...]) -> Given:
    """Parse ``--at`` options; raises UsageError."""
    real: dict[str, tuple[float, ...]] = {}
    other: dict[str, Any] = {}
    dtypes: dict[str, Format] = {}
    for item in items:
        left, equals, right = item.partition("=")
        name, _, kind = (part.strip() for part in left.partition(":"))
        if not equals or not name or not right.strip():
            raise UsageError(f"--at '{item}': no value; {FORM}.")
        if name in real or name in other:
            raise UsageError(f"--at gives '{name}' twice.")
        words = [w.strip() for w in right.split(",")]
        if kind == "int":
            index = np.array([_integer(item, w) for w in words], dtype=np.int64)
            other[name] = index[0] if len(index) == 1 else index
        elif kind == "bool":
            other[name] = np.array([_boolean(item, w) for w in words])
        else:
            if kind:
                dtypes[name] = find_format(kind)
            real[name] = tuple(x for w in words for x in _numbers(item, w))
    return Given(real, other, dtypes)


def _numbers(item: str, word: str) -> list[float]:
    """Return a decimal or hexadecimal number; ``VALUE*N`` is N of them."""
    value, times, count = word.partition("*")
    try:
        if "_" in word or not word.isascii():
            raise ValueError(word)
        x = float.fromhex(value) if "x" in value.lower() else float(value)
        n = int(count) if times else 1
    except (ValueError, OverflowError):
        raise UsageError(f"--at '{item}': '{word}' is not a number; {FORM}.") from None
    if not 1 <= n <= 1_000_000:
        raise UsageError(f"--at '{item}': '{word}' asks for {n} values, expected 1 to 1000000.")
    return [x] * n


def _integer(item: str, word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise UsageError(f"--at '{item}': '{word}' is not an integer.") from None


def _boolean(item: str, word: str) -> bool:
    if word.lower() not in _TRUE + _FALSE:
        raise UsageError(f"--at '{item}': '{word}' is neither 1 nor 0.")
    return word.lower() in _TRUE
