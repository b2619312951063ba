"""A back end that calls its candidate for one element at a time: for functions that return a mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from kl_audit.backends import Backend, Evaluate, EvaluateArrays
from kl_audit.formats import FloatArray, Format
from kl_audit.quantities.base import Candidate


class Pointwise(Backend):
    """Another back end, seen one element at a time."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.name, self.rank = inner.name, inner.rank  # type: ignore[misc]
        self.modes, self.differentiates = inner.modes, inner.differentiates  # type: ignore[misc]

    def versions(self) -> dict[str, str]:
        """See ``Backend.versions``."""
        return self._inner.versions()

    def devices(self) -> list[str]:
        """See ``Backend.devices``."""
        return self._inner.devices()

    def arrays(
        self, columns: tuple[FloatArray, ...], device: str = "cpu", track: bool = False
    ) -> tuple[Any, list[Any]]:
        """See ``Backend.arrays``."""
        return self._inner.arrays(columns, device, track)

    def array_evaluator(
        self, fn: Candidate, mode: str, device: str, wrt: tuple[int, ...] = ()
    ) -> EvaluateArrays:
        """See ``Backend.array_evaluator``."""
        return self._inner.array_evaluator(fn, mode, device, wrt)

    def evaluator(
        self, fn: Candidate, mode: str, device: str, fmt: Format, output: str = "value",
        wrt: int = 0, result: Format | None = None,
    ) -> Evaluate:  # fmt: skip
        """Return an evaluator that calls the candidate once for each element."""
        once = self._inner.evaluator(fn, mode, device, fmt, output, wrt, result)

        def evaluate(*inputs: FloatArray) -> FloatArray:
            n = len(inputs[0])
            out: FloatArray = np.concatenate([once(*(c[i : i + 1] for c in inputs)) for i in range(n)])
            return out

        return evaluate
