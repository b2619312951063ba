"""HOW a quantity is computed: one expression for every array namespace, with its law and source."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from kl_audit.formats import Format
from kl_audit.formulations.laws import Law
from kl_audit.quantities.base import Candidate, Clamp


@dataclass(frozen=True)
class Formulation:
    """One way of writing a quantity.  The module's docstring holds the derivation of its law."""

    name: str
    quantity: str  #: the base quantity that it computes
    fn: Candidate  #: ``fn(xp, d)``
    formula: str  #: as a reader would write it
    source: str  #: where it is used or was described
    law: Law | None
    gradient_law: Law | None = None
    clamp: Clamp | None = None  #: it computes this clamped objective, and is held against it
    formats: tuple[str, ...] = ()  #: long names of the formats it is for; empty: all
    monotone: bool = False  #: promises to fall before 0 and rise after it
    result: Format | None = None  #: the format it returns, where that is not the input's

    @property
    def derivation(self) -> str:
        """The docstring of the module that defines the formulation."""
        module = inspect.getmodule(self.fn)
        return inspect.cleandoc(module.__doc__ or "") if module else ""

    def reason_not_for(self, fmt: Format) -> str | None:
        """Return why the formulation does not apply to a format, or None where it does."""
        if not self.formats or fmt.name in self.formats:
            return None
        return f"{self.name} is for {', '.join(self.formats)} only"
