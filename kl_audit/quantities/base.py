"""What is computed: a quantity is a function of named inputs with its exact reference.

Sign conventions: the log-ratio is d = log p_reference - log p_policy (the argument of k3), and a
gradient is taken with respect to the quantity's first input: d itself, or the policy's
log-probability for a quantity of the pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from kl_audit.formats import Float64Array, Format
from kl_audit.oracle.balls import ball_truth
from kl_audit.oracle.exact import Reference, Undefined, certify
from kl_audit.oracle.truth import BoolArray, Sum, TruthArray

#: Relative width of a clamp's edge: one unit in the last place of bfloat16, the coarsest format.
EDGE = 2.0**-7

#: A reference in float64 pairs with proven bounds, for formats of at most 24 bits.
FastReference = Callable[..., Sum]

#: A candidate: ``fn(xp, *inputs)`` in the operations of one array namespace.
Candidate = Callable[..., Any]


@dataclass(frozen=True)
class Side:
    """One audited output (the value, or the gradient) of a quantity."""

    reference: Reference
    fast: FastReference | None = None
    #: limits at log-ratio -inf and +inf
    limits: tuple[float, float] = (float("nan"), float("nan"))

    def truth(self, inputs: tuple[Float64Array, ...], fmt: Format) -> TruthArray:
        """Return the settled truth at every point; raises OracleError where there is none."""
        if self.fast is not None and fmt.precision <= 24:
            total = self.fast(*inputs)
        else:
            total = ball_truth(self.reference, inputs, fmt)
        truth = TruthArray(fmt, total)
        truth.settle(lambda i: self.exact(tuple(float(c[i]) for c in inputs), fmt))
        return truth

    def exact(self, inputs: tuple[float, ...], fmt: Format, bits: int = 0) -> Fraction:
        """Return the certified value at one point; raises Undefined or OracleError."""
        return certify(self.reference, inputs, fmt, bits)


@dataclass(frozen=True)
class Quantity:
    """A quantity: its inputs, its exact value and gradient, and what must hold for any result."""

    name: str
    summary: str  #: one line, with the formula
    inputs: tuple[str, ...]
    value: Side
    gradient: Side  #: derivative with respect to ``inputs[0]``
    log_ratio: Callable[..., Float64Array]  #: the axis of bands and laws, from float64 inputs
    nonnegative: bool = False  #: a result below zero is a finding (KLA101)
    valley: bool = False  #: falls for x < 0 and rises for x > 0 (KLA103)
    zero_at_zero: bool = False  #: (KLA102)
    lift: Callable[[Candidate], Candidate] = lambda fn: fn  #: a base formulation, made to fit
    base: str = ""  #: whose formulations serve; its own name unless lifted
    relift: Callable[[Quantity], Quantity] | None = None  #: makes this quantity from its base
    #: relative error that the lift itself may add, in units of u, at log-ratio x
    lift_error: Callable[[Float64Array], Float64Array] = np.zeros_like
    others: tuple[Side, ...] = ()  #: derivatives with respect to ``inputs[1:]``

    def side(self, output: str, wrt: int = 0) -> Side:
        """Return the value, or the ``gradient`` with respect to input number ``wrt``."""
        if output == "value":
            return self.value
        return self.others[wrt - 1] if wrt else self.gradient

    @property
    def base_name(self) -> str:
        """The quantity whose formulations compute this one."""
        return self.base or self.name


@dataclass(frozen=True)
class Clamp:
    """A clamped objective: clip the log-ratio before, clip the result after; None leaves open."""

    input: tuple[float, float] | None = None
    output: tuple[float, float] | None = None

    def __str__(self) -> str:
        """Describe the clamps in one phrase."""
        parts = []
        if self.input:
            parts.append(f"log-ratio clipped to {_interval(self.input)}")
        if self.output:
            parts.append(f"result clipped to {_interval(self.output)}")
        return ", ".join(parts)

    def reach(self, quantity: Quantity) -> tuple[float, float]:
        """Return the log-ratios between which the clamped objective is the quantity of d itself."""
        low, high = self.input or (-math.inf, math.inf)
        if self.output is None:
            return low, high
        ends = []
        for side, limit in ((-1.0, low), (1.0, high)):
            inside, outside = 0.0, side * min(abs(limit), 1e4)
            if self._within(quantity, outside):
                ends.append(limit)
                continue
            for _ in range(200):
                x = (inside + outside) / 2
                inside, outside = (x, outside) if self._within(quantity, x) else (inside, x)
            ends.append(outside)
        return ends[0], ends[1]

    def _within(self, quantity: Quantity, x: float) -> bool:
        assert self.output is not None
        return self.output[0] < _value_at(quantity.value, x) < self.output[1]

    def apply(self, quantity: Quantity) -> Quantity:
        """Return the clamped objective of a quantity of d, with its own exact value and gradient.

        The gradient is 0 where a clamp is active and undefined on its edge, where frameworks differ
        and each is right: exactly there for the log-ratio, and for the result within EDGE of the
        limit, where the candidate's own rounding decides on which side it is.
        """
        value, slope = quantity.value, quantity.gradient
        inner, outer = self.input, self.output

        def value_reference(ops: Any, d: Any) -> Any:
            result = value.reference(ops, ops.clip(d, *inner) if inner else d)
            return ops.clip(result, *outer) if outer else result

        def slope_reference(ops: Any, d: Any) -> Any:
            if inner and not ops.inside(d, *inner):
                return d - d
            if outer:
                result = value.reference(ops, d)
                ends = [(x - abs(x) * EDGE, x + abs(x) * EDGE) for x in outer if math.isfinite(x)]
                if any(ops.inside(result, *end) for end in ends):
                    raise Undefined
                if not ops.inside(result, *outer):
                    return d - d
            return slope.reference(ops, d)

        def fast_value(d: Float64Array) -> Sum:
            assert value.fast is not None
            total = value.fast(np.clip(d, *inner) if inner else d)
            return clip_sum(total, *outer) if outer else total

        def fast_slope(d: Float64Array) -> Sum:
            assert value.fast is not None
            assert slope.fast is not None
            total = slope.fast(d)
            for x, limits, edge in ((value.fast(d).hi, outer, EDGE), (d, inner, 0.0)):
                if limits:
                    total = _masked(total, x, *limits, edge)
            return total

        low, high = value.limits
        if inner:
            low, high = (_value_at(value, x) for x in inner)
        if outer:
            low, high = (min(max(x, outer[0]), outer[1]) for x in (low, high))
        has_fast = value.fast is not None and slope.fast is not None
        return replace(
            quantity,
            value=Side(value_reference, fast_value if has_fast else None, (low, high)),
            gradient=Side(slope_reference, fast_slope if has_fast else None, (0.0, 0.0)),
        )


def _interval(limits: tuple[float, float]) -> str:
    return f"[{limits[0]:.5g}, {limits[1]:.5g}]"


def _value_at(value: Side, x: float) -> float:
    """Return a value, or its limit, as a float."""
    if math.isinf(x):
        return value.limits[x > 0]
    return float(value.fast(np.array([x])).hi[0]) if value.fast else math.nan


def clip_sum(total: Sum, low: float, high: float) -> Sum:
    """Clip a bulk value; where a limit is active it is exact."""
    out: BoolArray = (total.hi >= high) | (total.hi <= low)
    return Sum(
        np.clip(total.hi, low, high),
        np.where(out, 0.0, total.lo),
        np.where(out, 0.0, total.err),
    )


def _masked(total: Sum, x: Float64Array, low: float, high: float, edge: float) -> Sum:
    """Zero a derivative where x is outside its limits; nan (undefined) on their edges."""
    out = (x > high) | (x < low)
    hi = np.where(out, 0.0, total.hi)
    for limit in (low, high):
        if math.isfinite(limit):
            hi[np.abs(x - limit) <= edge * abs(limit)] = np.nan
    return Sum(hi, np.where(out, 0.0, total.lo), np.where(out, 0.0, total.err))
