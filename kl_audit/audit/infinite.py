"""Quantities of the log-ratio at infinite inputs, as formulas on arrays: no grid holds these."""

from __future__ import annotations

import math

from kl_audit.audit.expressed import ExpressedSide, reference_of
from kl_audit.audit.tried import Problem
from kl_audit.expression import parse
from kl_audit.quantities import Clamp, Quantity

#: The base quantities, as formulas of {d}.
BASES = {
    "k1": "-{d}",
    "k2": "{d}^2 / 2",
    # exp(inf) - inf is no number; beyond all formats exp(d) is k3 to the last digit
    "k3": "where({d} > 1e300, exp({d}), exp({d}) - 1 - {d})",
    "ratio": "exp({d})",
    "exp": "exp({d})",
    "expm1": "expm1({d})",
    "log1mexp": "log1p(-exp({d}))",
    "log-sigmoid": "log_sigmoid({d})",
}

#: What is made of the base, where a quantity is more than that.
LIFTS = {
    "weighted-k3": "exp(sg(d) - d) * ({base})",
    "weighted-k3-pair": "d = reference - policy; exp(policy - sg(old)) * ({base})",
    **{f"{name}-pair": "d = reference - policy; {base}" for name in ("k1", "k2", "k3", "ratio")},
}


def problem_at_infinity(quantity: Quantity, clamp: Clamp | None) -> Problem:
    """Return the quantity, its base clamped as in ``objective``, as a problem of arrays of any values."""
    if isinstance(quantity.value, ExpressedSide):
        formula = quantity.value.formula
    else:
        formula = reference_of(parse(_text(quantity, clamp)), {})
    names = quantity.inputs
    return Problem(quantity.name, names, names, names, formula, elementwise=True)


def _text(quantity: Quantity, clamp: Clamp | None) -> str:
    lift = LIFTS.get(quantity.name)
    d = "d" if lift else quantity.inputs[0]
    base = BASES[quantity.base_name]
    if clamp is None:
        return (lift or "{base}").format(base=base.format(d=d))
    base = base.format(d=f"clip({d}, {_limits(clamp.input)})" if clamp.input else d)
    if clamp.output:
        base = f"clip({base}, {_limits(clamp.output)})"
    return (lift or "{base}").format(base=base)


def _limits(pair: tuple[float, float]) -> str:
    return ", ".join(repr(x) if math.isfinite(x) else "None" for x in pair)
