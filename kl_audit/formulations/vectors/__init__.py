"""The formulations of the quantities of vectors; adding one is adding a file to this package."""

from __future__ import annotations

import sys

from kl_audit.discovery import collect
from kl_audit.formulations.vector_base import VectorFormulation

VECTOR_FORMULATIONS: tuple[VectorFormulation, ...] = tuple(
    collect(sys.modules[__name__], "VECTOR_FORMULATION")
)


def vector_formulations_of(quantity: str) -> list[VectorFormulation]:
    """Return the formulations of a quantity of vectors: stock ones in file order, sound ones last."""
    return sorted((f for f in VECTOR_FORMULATIONS if f.quantity == quantity), key=lambda f: f.sound)


__all__ = ["VECTOR_FORMULATIONS", "VectorFormulation", "vector_formulations_of"]
