"""HOW a quantity of vectors is computed: one expression for every array namespace."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from kl_audit.quantities.base import Candidate


@dataclass(frozen=True)
class VectorFormulation:
    """One way of writing a vector quantity; the module's docstring says why it is good or bad."""

    name: str
    quantity: str
    fn: Candidate  #: ``fn(xp, *inputs)``, inputs in the order of the quantity's
    formula: str  #: as a reader would write it
    source: str  #: where it is used or was described
    sound: bool = False  #: meant to be right; offered as a remedy where it passes

    @property
    def derivation(self) -> str:
        """The docstring of the module that defines the formulation."""
        module = inspect.getmodule(self.fn)
        return inspect.cleandoc(module.__doc__ or "") if module else ""
