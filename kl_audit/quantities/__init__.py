"""The quantities, by name."""

from __future__ import annotations

from kl_audit.errors import unknown
from kl_audit.quantities.base import Clamp, Quantity, Side
from kl_audit.quantities.lifted import of_pair, weighted, weighted_pair
from kl_audit.quantities.logistic import LOGISTIC
from kl_audit.quantities.scalar import EXP, EXPM1, K1, K2, K3, RATIO, SCALAR

_LIFTED = (*tuple(of_pair(q) for q in (K3, K1, K2, RATIO)), weighted(K3), weighted_pair(K3))

#: Every quantity, by name.
QUANTITIES: dict[str, Quantity] = {q.name: q for q in (*SCALAR, *_LIFTED, *LOGISTIC)}


def find_quantity(name: str) -> Quantity:
    """Return the quantity called ``name``; raises UsageError with the known names."""
    try:
        return QUANTITIES[name.lower()]
    except KeyError:
        raise unknown("quantity", name, list(QUANTITIES)) from None


def objective(quantity: Quantity, clamp: Clamp | None) -> Quantity:
    """Return the quantity with the base inside it clamped, as a clamped formulation computes it."""
    if clamp is None:
        return quantity
    clamped = clamp.apply(QUANTITIES[quantity.base_name])
    return clamped if quantity.relift is None else quantity.relift(clamped)


__all__ = [
    "EXP",
    "EXPM1",
    "K1",
    "K2",
    "K3",
    "QUANTITIES",
    "RATIO",
    "SCALAR",
    "Clamp",
    "Quantity",
    "Side",
    "find_quantity",
    "objective",
]
