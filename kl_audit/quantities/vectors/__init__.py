"""The quantities of vectors, by name; adding one is adding a file to this package."""

from __future__ import annotations

import sys

from kl_audit.discovery import collect
from kl_audit.errors import unknown
from kl_audit.quantities.vector_base import VectorQuantity

#: Every quantity of vectors, by name.
VECTORS: dict[str, VectorQuantity] = {q.name: q for q in collect(sys.modules[__name__], "VECTOR")}


def find_vector(name: str) -> VectorQuantity:
    """Return the quantity of vectors called ``name``; raises UsageError with the known names."""
    try:
        return VECTORS[name.lower()]
    except KeyError:
        raise unknown("vector quantity", name, list(VECTORS)) from None


__all__ = ["VECTORS", "find_vector"]
