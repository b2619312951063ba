"""What to do about it: the stock formulation that passes where the candidate fails, measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from kl_audit.checks import Bounds, judge
from kl_audit.formulations import Formulation, formulations_for
from kl_audit.quantities import QUANTITIES, Clamp, Quantity
from kl_audit.quantities.base import Candidate
from kl_audit.sweep import Listener, Row, sweep

#: The most accurate first, and the plainest last.
_PREFERENCE = ("straight-through", "hybrid-poly", "poly-upcast", "hybrid-upcast", "compensated", "expm1",
               "switched", "stable", "library")  # fmt: skip


@dataclass(frozen=True)
class Remedy:
    """A stock formulation under the conditions of a failed row; None where none passes."""

    formulation: Formulation | None
    verdict: str | None
    max_ulp: float | None
    max_rel: float | None
    text: str
    was: float | None = None  #: the error of the row that failed, over the same inputs


def find_remedy(
    row: Row, was: float, bounds: Bounds, seed: int, listener: Listener, first: str | None = None
) -> Remedy:
    """Return the first stock formulation, by preference, that passes on the row's own grid and target.

    ``was`` is the row's own error; ``first`` names one to begin with: what cured the row before.
    """
    block = row.block
    tried = []
    ordered = candidates(block.quantity, row.formulation.clamp)
    ordered.sort(key=lambda f: f.name != first)
    for stock in ordered:
        if stock.reason_not_for(block.fmt):
            continue
        # It is held to what was asked for, not to its own law, which may be much tighter.
        plain = replace(stock, law=None, gradient_law=None)
        lone = replace(block, formulations=(plain,), targets=(row.target,))
        for lengths in (False, True):  # short arrays cost a compiler seconds: only if the rest passes
            (measured,) = sweep([lone], seed, 1, listener, lengths)
            judged = judge(measured, bounds)
            if judged.verdict != "pass":
                break
        else:
            text = f"{stock.name} passes here: {stock.formula}"
            return Remedy(stock, "pass", judged.max_ulp, judged.core_rel, text, was)
        tried.append(stock.name)
    names = ", ".join(tried) or "none applies"
    return Remedy(None, None, None, None, f"no stock formulation passes under these conditions ({names})")


def candidates(quantity: Quantity, clamp: Clamp | None) -> list[Formulation]:
    """Return the unclamped stock formulations by preference, put under the objective's clamp."""
    stock = [f for f in formulations_for(quantity) if f.clamp is None]
    order = {name: i for i, name in enumerate(_PREFERENCE)}
    stock.sort(key=lambda f: order.get(f.name, len(order)))
    if clamp is None:
        return stock
    return [_under(f, clamp) for f in stock if f.quantity == quantity.base_name]


def _under(f: Formulation, clamp: Clamp) -> Formulation:
    """Clip the log-ratio where the clamped objective goes flat: nothing overflows, nothing is NaN."""
    low, high = clamp.reach(QUANTITIES[f.quantity])
    base: Candidate = f.fn
    limits = [x if math.isfinite(x) else None for x in (low, high)]

    def clipped(xp: Any, d: Any) -> Any:
        return base(xp, xp.clip(d, *limits))

    return replace(
        f,
        name=f"{f.name} of clip(d)",
        fn=clipped,
        formula=f"{f.formula}, d clipped to [{low:.5g}, {high:.5g}] before",
        law=None,
        gradient_law=None,
        clamp=clamp,
    )
