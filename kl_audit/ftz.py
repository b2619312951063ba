"""Flush-to-zero, probed: a property of a back end, mode, device and format, stated in reports."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kl_audit.backends import Backend, CandidateError, Unavailable
from kl_audit.formats import Format


@dataclass(frozen=True)
class Flushing:
    """Whether subnormal results, and subnormal inputs, become zero."""

    results: bool
    inputs: bool

    def __str__(self) -> str:
        """Return one word for tables."""
        if self.results:
            return "flushed"
        return "inputs flushed" if self.inputs else "kept"


def _product(xp: Any, a: Any, b: Any) -> Any:
    """A product of two run-time arrays: a literal factor could be simplified away."""
    return a * b


@cache
def flushing(backend: Backend, mode: str, device: str, fmt: Format) -> Flushing:
    """Probe by products at vector length; raises Unavailable where the mode is.

    A normal number times one half is subnormal (a result); a subnormal times 2**(p-1) is normal (an
    input).
    """
    evaluate = backend.evaluator(_product, mode, device, fmt)
    scale = 2.0 ** (fmt.precision - 1)
    a = np.repeat([fmt.smallest_normal, fmt.smallest], 32)
    b = np.repeat([0.5, scale], 32)
    try:
        got = evaluate(fmt.cast(a), fmt.cast(b)).astype(np.float64)
    except CandidateError as error:
        raise Unavailable(f"{backend.name} {mode} cannot multiply {fmt.name}: {error}") from error
    return Flushing(bool((got[:32] == 0).any()), bool((got[32:] == 0).any()))
