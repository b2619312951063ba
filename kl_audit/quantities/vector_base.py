"""Quantities of vectors: named arrays in, one number (or an array) out, with cases to try them on.

The reference is an expression in the vocabulary of ``backends.base`` on exact arrays
(``oracle.arrays``), which also gives the exact gradient; cases come from a generator, since no grid covers
a vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from kl_audit.formats import Float64Array, Format

#: What an input is: only ``real`` ones are rounded to the dtype and differentiated.
Kind = Literal["real", "index", "mask"]


@dataclass(frozen=True)
class Input:
    """One named input of a vector quantity."""

    name: str
    summary: str
    kind: Kind = "real"
    differentiated: bool = True  #: the gradient with respect to it is audited


@dataclass(frozen=True)
class Case:
    """Inputs to evaluate at: real ones as float64 values of the format, exactly."""

    name: str  #: what it is: ``concentrated, V=1000``
    inputs: dict[str, Any]  #: float64 arrays, int64 index arrays (or an int), bool masks
    #: what it tries: ``identical``, ``masked``, ``shifted``, ``all-masked``, ``infinite``; else ordinary
    tag: str = ""
    size: int = 0  #: the vocabulary, or the number of tokens


#: ``cases(fmt, rng, size)`` yields the cases of one vocabulary size (or token count).
Generator = Callable[[Format, np.random.Generator, int], Iterator[Case]]


@dataclass(frozen=True)
class VectorQuantity:
    """A quantity of vectors: its inputs, exact reference, cases and what must hold of any result."""

    name: str
    summary: str  #: one line, with the formula
    inputs: tuple[Input, ...]
    reference: Callable[..., Any]  #: ``reference(ops, **inputs)`` on exact arrays
    cases: Generator
    sizes: tuple[int, ...]  #: default vocabulary sizes or token counts
    #: least and greatest value that any result may have at a case, None where there is no limit
    lower: Callable[[Case], float | None] = field(default=lambda case: None)
    upper: Callable[[Case], float | None] = field(default=lambda case: None)
    zero_on_identical: bool = False  #: exactly 0 for cases tagged ``identical`` (KLA102)
    #: equal inputs whose accumulation may stall: ``flat(fmt, n)`` and its reference is still exact
    flat: Callable[[Format, int], Case] | None = None

    @property
    def differentiated(self) -> tuple[str, ...]:
        """The inputs whose gradients are audited."""
        return tuple(i.name for i in self.inputs if i.kind == "real" and i.differentiated)


def rounded(fmt: Format, values: Any) -> Float64Array:
    """Round values to the format and return them as float64."""
    out: Float64Array = fmt.cast(values).astype(np.float64)
    return out
