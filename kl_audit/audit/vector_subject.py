"""A function of the reader's on vectors: the shape that it wants, and its result as the quantity's."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kl_audit.audit.subject import Made, Subject
from kl_audit.backends import Backend, CandidateError
from kl_audit.callee import Binding, Heard, Loaded, ShapePlan, quiet
from kl_audit.callee.call import Mask, invoke
from kl_audit.callee.outputs import as_array, describe, entries, take
from kl_audit.errors import UsageError
from kl_audit.formats import FloatArray, Format, find_format
from kl_audit.quantities.base import Candidate


@dataclass
class VectorCallable(Subject):
    """Tries the inputs as they are, then with one and two leading axes of length 1."""

    loaded: Loaded
    binding: Binding
    output: str | None
    columns: tuple[FloatArray, ...]  #: one case, to try it on
    shape: tuple[int, ...]  #: of the quantity's result
    _made: dict[tuple[str, str], Made] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = self.loaded.short
        self.text = f"{self.loaded.name} ({self.binding})"
        self.file, self.line = self.loaded.file, self.loaded.line

    def made(self, backend: Backend, fmt: Format, points: int) -> Made:
        """See ``Subject.made``; raises CandidateError where no shape is accepted."""
        key = (backend.name, fmt.name)
        if key not in self._made:
            self._made[key] = self._find(backend, fmt)
        return self._made[key]

    def _find(self, backend: Backend, fmt: Format) -> Made:
        columns = tuple(
            fmt.cast(c) if c.dtype.kind == "f" or c.dtype.name == "bfloat16" else c for c in self.columns
        )
        errors: list[str] = []
        masks: tuple[Mask, ...] = ("bool", "float")
        for rank in (0, 1, 2):
            for mask in masks if "mask" in self.binding.inputs or self.binding.masks else masks[:1]:
                fn = self._candidate(rank, ShapePlan(None, mask))
                run = backend.array_evaluator(fn, backend.modes[0].name, "cpu")
                try:
                    with quiet() as heard:
                        first, _ = run(*columns)
                        second, _ = run(*columns)
                except CandidateError as error:
                    errors.append(str(error))
                    continue
                random = first.tobytes() != second.tobytes()
                return Made(
                    fn, find_format(first.dtype.name), facts=_facts(rank, heard),
                    reason="two calls on the same input differ (random numbers)" if random else None,
                )  # fmt: skip
        raise CandidateError("; then ".join(dict.fromkeys(errors)))

    def _candidate(self, rank: int, plan: ShapePlan) -> Candidate:
        loaded, binding, key, shape = self.loaded, self.binding, self.output, self.shape
        size = math.prod(shape)

        def call(xp: Any, *inputs: Any) -> Any:
            arrays = tuple(xp.reshape(x, (1,) * rank + tuple(x.shape)) if rank else x for x in inputs)
            returned = invoke(loaded, binding, plan, xp, arrays)
            result = as_array(xp, _part(xp, returned, key))
            if math.prod(result.shape) != size:
                raise CandidateError(f"returned {describe(result)}, expected {size} value(s)")
            return xp.reshape(result, shape)

        return call


def _part(xp: Any, returned: Any, key: str | None) -> Any:
    if key is not None:
        return take(returned, key)
    if xp.is_array(returned) or isinstance(returned, np.generic):
        return returned
    parts = entries(returned) or {}
    arrays = [k for k, v in parts.items() if xp.is_array(v)]
    if len(arrays) == 1:
        return parts[arrays[0]]
    if arrays:
        raise UsageError(f"it returned {describe(returned)}: say which with --output {arrays[0]}.")
    return returned


def _facts(rank: int, heard: Heard) -> tuple[str, ...]:
    facts = [f"called with {rank} leading axes of length 1"] if rank else []
    if heard.printed:
        facts.append(f"prints: {heard.printed}")
    return tuple(facts)


@dataclass
class Plain(Subject):
    """A candidate that needs no trying: a formula, or a stock formulation."""

    fn: Candidate
    name: str
    text: str

    def made(self, backend: Backend, fmt: Format, points: int) -> Made:
        """See ``Subject.made``."""
        return Made(self.fn, fmt)
