"""The back end's own exp and expm1, held to 1 ulp: what a law's E is measured on."""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import UlpLaw


def library_exp(xp: Any, d: Any) -> Any:
    """Evaluate exp(d)."""
    return xp.exp(d)


def library_expm1(xp: Any, d: Any) -> Any:
    """Evaluate expm1(d)."""
    return xp.expm1(d)


FORMULATION = (
    Formulation(
        name="library",
        quantity="exp",
        fn=library_exp,
        formula="exp(d)",
        source="the framework",
        law=UlpLaw(1, "exp", slope=1),
    ),
    Formulation(
        name="library",
        quantity="expm1",
        fn=library_expm1,
        formula="expm1(d)",
        source="the framework",
        law=UlpLaw(1, "expm1", slope=1),
    ),
)
