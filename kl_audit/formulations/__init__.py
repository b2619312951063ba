"""The formulations, by quantity and name; adding one is adding a file to this package."""

from __future__ import annotations

import sys

from kl_audit.discovery import collect
from kl_audit.errors import unknown
from kl_audit.formulations.base import Formulation
from kl_audit.quantities import Quantity

#: Tables show k3 from the plainest way of writing it to the most careful.
_ORDER = [
    "naive", "naive-grouped", "expm1", "compensated", "hybrid", "hybrid-upcast", "hybrid-poly", "poly-upcast",
    "clamp-out", "clamp-in", "clamp-in-out",
]  # fmt: skip


def _rank(f: Formulation) -> tuple[int, str]:
    return (_ORDER.index(f.name) if f.name in _ORDER else len(_ORDER), f.name)


FORMULATIONS: tuple[Formulation, ...] = tuple(
    sorted(collect(sys.modules[__name__], "FORMULATION"), key=_rank)
)


def formulations_of(quantity: str) -> list[Formulation]:
    """Return the formulations of a base quantity, in table order."""
    return [f for f in FORMULATIONS if f.quantity == quantity]


def formulations_for(quantity: Quantity) -> list[Formulation]:
    """Return those that compute a quantity: its base's, to be lifted, and its own."""
    own = formulations_of(quantity.name) if quantity.name != quantity.base_name else []
    return [*formulations_of(quantity.base_name), *own]


def find_formulations(quantity: Quantity, names: list[str]) -> list[Formulation]:
    """Return those called ``names`` (``all``: every one); raises UsageError for an unknown name."""
    known = formulations_for(quantity)
    if not names or "all" in names:
        return known
    by_name = {f.name: f for f in known}
    for name in names:
        if name.lower() not in by_name:
            raise unknown(f"formulation of {quantity.name}", name, list(by_name))
    wanted = {name.lower() for name in names}
    return [f for f in known if f.name in wanted]


__all__ = ["FORMULATIONS", "Formulation", "find_formulations", "formulations_for", "formulations_of"]
