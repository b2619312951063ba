"""A quantity given as a formula: its value and derivatives in exact arithmetic are the truth."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from kl_audit.errors import OracleError
from kl_audit.expression import Expression
from kl_audit.formats import Float64Array, Format
from kl_audit.oracle.certified import evaluate, recompute
from kl_audit.oracle.exact import EXPONENT_LIMIT, Undefined
from kl_audit.oracle.truth import BoolArray, Sum, TruthArray
from kl_audit.quantities.base import Quantity, Side


def reference_of(expression: Expression, constants: dict[str, float]) -> Any:
    """Return ``reference(ops, **inputs)``: the formula in exact arithmetic, constants as given."""

    def reference(ops: Any, **inputs: Any) -> Any:
        return expression(ops, **inputs, **{n: ops.number(Fraction(c)) for n, c in constants.items()})

    return reference


@dataclass(frozen=True)
class ExpressedSide(Side):
    """The value of a formula, or its derivative by one of its inputs, element by element."""

    names: tuple[str, ...] = ()
    formula: Any = field(default=None)  #: ``formula(ops, **inputs)`` on exact arrays
    wrt: str | None = None

    def truth(self, inputs: tuple[Float64Array, ...], fmt: Format) -> TruthArray:
        """See ``Side.truth``: bulk by balls."""
        columns = dict(zip(self.names, inputs, strict=True))
        wrt = () if self.wrt is None else (self.wrt,)
        found = evaluate(self.formula, columns, wrt, fmt)
        output = found.value if self.wrt is None else found.gradients[self.wrt]
        if output is not None:
            return _where_defined(output.truth, found.value.truth.undefined)
        n = len(inputs[0])
        if n == 1:
            nan, zero = np.array([math.nan]), np.array([0.0])
            return TruthArray(fmt, Sum(nan, zero, zero.copy(), np.zeros(1, dtype=np.int64)))
        # One of the points is a kink: it is undefined there, and the others are not.
        halves = [self.truth(tuple(c[part] for c in inputs), fmt)
                  for part in (slice(0, n // 2), slice(n // 2, n))]  # fmt: skip
        return _joined(fmt, halves)

    def exact(self, inputs: tuple[float, ...], fmt: Format, bits: int = 0) -> Fraction:
        """See ``Side.exact``: by mpmath intervals."""
        columns = {n: np.array([x]) for n, x in zip(self.names, inputs, strict=True)}
        (value,) = recompute(self.formula, columns, [0], fmt, self.wrt)
        if self.wrt is not None:  # what has no value has no derivative
            (of,) = recompute(self.formula, columns, [0], fmt)
            value = math.nan if isinstance(of, float) and math.isnan(of) else value
        if isinstance(value, Fraction):
            return value
        if math.isnan(value):
            raise Undefined
        return Fraction(2) ** EXPONENT_LIMIT * (1 if value > 0 else -1)  # infinite in every format


def _where_defined(truth: TruthArray, undefined: BoolArray) -> TruthArray:
    """Return a derivative with no value where its function has none."""
    if not (undefined & ~truth.undefined).any():
        return truth
    s = truth.sum
    hi = np.where(undefined, math.nan, s.hi)
    return _settled(truth.fmt, Sum(hi, s.lo, s.err, s.scale))


def _settled(fmt: Format, total: Sum) -> TruthArray:
    truth = TruthArray(fmt, total)
    truth.open[:] = False  # its parts were settled
    return truth


def _joined(fmt: Format, parts: list[TruthArray]) -> TruthArray:
    sums = [p.sum for p in parts]
    scale = np.concatenate(
        [np.zeros(len(s.hi), dtype=np.int64) if s.scale is None else s.scale for s in sums]
    )
    hi, lo, err = (np.concatenate([getattr(s, f) for s in sums]) for f in ("hi", "lo", "err"))
    return _settled(fmt, Sum(hi, lo, err, scale))


def quantity_of(expression: Expression, constants: dict[str, float]) -> Quantity:
    """Return an elementwise formula as a quantity; its axis is the log-ratio, or its first input."""
    names = tuple(n for n in expression.names if n not in constants)
    formula = reference_of(expression, constants)

    def side(wrt: str | None) -> ExpressedSide:
        return ExpressedSide(_unused, names=names, formula=formula, wrt=wrt)

    def axis(*columns: Float64Array) -> Float64Array:
        named = dict(zip(names, columns, strict=True))
        if "policy" in named and "reference" in named:
            return named["reference"] - named["policy"]
        return columns[0]

    return Quantity(
        name="expression", summary=expression.text, inputs=names, value=side(None),
        gradient=side(names[0]), log_ratio=axis, others=tuple(side(n) for n in names[1:]),
    )  # fmt: skip


def _unused(ops: Any, *inputs: Any) -> Any:
    raise OracleError("a formula has no scalar reference")
