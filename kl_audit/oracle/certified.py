"""The certified value and gradient of a reference on arrays, in bulk.

``reference(ops, **inputs)`` is evaluated on arrays of balls (or intervals) with more and more
precision, until every element is *settled*:

* it is known to p + 40 bits (and to the 30 digits that are printed), or
* it is surely below 2**-40 of the smallest number of the format: then it is 0 for that format (the KL
  divergence of two equal distributions is an enclosure of 0 that only gets narrower), or
* for a gradient of scale ``norm``: its error is below 2**-(p+40) of the largest element.

What is never settled is refused with OracleError, as in ``exact``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import flint
import numpy as np
import numpy.typing as npt

from kl_audit.errors import OracleError
from kl_audit.formats import Float64Array, Format
from kl_audit.oracle.arrays import Array, ArrayOps, gradient
from kl_audit.oracle.balls import BallOps, fraction, is_float, precision_restored, to_sum, top
from kl_audit.oracle.exact import (
    GUARD_BITS,
    MAX_PRECISION,
    PRINTED_BITS,
    IntervalOps,
    Undecided,
    Undefined,
)
from kl_audit.oracle.scalars import ObjectArray, as_objects
from kl_audit.oracle.truth import BoolArray, TruthArray
from kl_audit.ulp import overflow_threshold

#: ``reference(ops, **inputs_and_constants) -> Array``.
ArrayReference = Callable[..., Any]
By = Literal["balls", "intervals"]
Scale = Literal["element", "norm"]
Indices = Sequence[int] | npt.NDArray[np.int64]

#: The most that small inputs may add to the precision of the first attempt.
_SMALL_INPUTS = 128

_accuracy = np.frompyfunc(flint.arb.rel_accuracy_bits, 1, 1)


def _bits(balls: ObjectArray) -> npt.NDArray[np.int64]:
    """Return how many bits each ball holds; very many for an exact one."""
    return np.asarray(_accuracy(balls), dtype=np.int64)


@dataclass(frozen=True)
class Output:
    """One certified output, flattened: the value, or the gradient with respect to one input."""

    truth: TruthArray  #: settled; ``truth.undefined`` where an element has no value
    shape: tuple[int, ...]
    balls: ObjectArray = field(repr=False)  #: flint.arb, or a Python float inf or nan

    def fractions(self, indices: Indices | None = None) -> list[Fraction | float]:
        """Return (chosen) elements for printing; a Python float where one is inf or undefined."""
        chosen = self.balls if indices is None else self.balls[np.asarray(indices, dtype=np.int64)]
        return [_printed(x, self.truth.fmt) for x in chosen]


@dataclass(frozen=True)
class Exact:
    """The certified value of a reference and its gradients, by input."""

    value: Output
    #: None where the gradient is undefined (at a kink); ``reasons`` says why
    gradients: dict[str, Output | None]
    reasons: dict[str, str]
    precision: int  #: bits of the arithmetic that settled the last of them


@dataclass(frozen=True)
class _Goal:
    """When the elements of an output are settled."""

    fmt: Format
    scale: Scale = "element"

    @property
    def bits(self) -> int:
        return max(self.fmt.precision + GUARD_BITS, PRINTED_BITS)

    def open(self, flat: ObjectArray) -> BoolArray:
        """Tell which elements are not settled."""
        out: BoolArray = ~is_float(flat)
        numbers = flat[out]
        out[out] = _bits(numbers) < self.bits
        if not out.any():
            return out
        norm = max(_least(x) for x in numbers) if self.scale == "norm" else 0
        for i in np.flatnonzero(out):
            narrow = self.scale == "norm" and _above(flat[i].rad()) <= norm - self.bits
            out[i] = not (narrow or _negligible(flat[i], self.fmt))
        return out


def _floor(fmt: Format) -> int:
    """Return k: what is below 2**k is 0 for the format."""
    return fmt.emin - fmt.precision + 1 - GUARD_BITS


def _above(x: Any) -> int:
    """Return k with |x| < 2**k for a ball without width."""
    return -(1 << 62) if x.is_zero() else top(x)


def _least(x: Any) -> int:
    """Return k with |x| >= 2**k everywhere in the ball; very low for one that holds 0."""
    return _above(x.abs_lower()) - 1


def _negligible(x: Any, fmt: Format) -> bool:
    return _above(x.abs_upper()) <= _floor(fmt)


def _printed(x: Any, fmt: Format) -> Fraction | float:
    if type(x) is float:
        return x
    if x.rel_accuracy_bits() < PRINTED_BITS and _negligible(x, fmt):
        return Fraction(0)
    return fraction(x)


#: An output is asked for by the name of an input, for the gradient, or by None, for the value.
_Key = str | None


def _alone(value: Array, leaf: Array) -> ObjectArray | Undefined:
    try:
        return gradient(value, [leaf])[0]
    except Undefined as why:
        return why


@dataclass(frozen=True)
class _Problem:
    reference: ArrayReference
    inputs: Mapping[str, Float64Array]
    constants: Mapping[str, Any]
    by: By

    def outputs(self, precision: int, keys: list[_Key]) -> dict[_Key, Any]:
        """Return the outputs at one precision, arrays of balls or Undefined; raises Undecided."""
        flint.ctx.prec = precision
        ops = ArrayOps(BallOps() if self.by == "balls" else IntervalOps(precision))
        leaves = {name: ops.array(np.asarray(x, dtype=np.float64)) for name, x in self.inputs.items()}
        value = ops.lift(self.reference(ops, **leaves, **self.constants))
        found: dict[_Key, Any] = {None: value.values}
        names = [key for key in keys if key is not None]
        try:
            found.update(zip(names, gradient(value, [leaves[name] for name in names]), strict=True))
        except Undefined:  # at a kink, which need not concern every input
            found.update((name, _alone(value, leaves[name])) for name in names)
        return {key: x if isinstance(x, Undefined) else self._balls(x) for key, x in found.items()}

    def _balls(self, values: ObjectArray) -> ObjectArray:
        return values if self.by == "balls" else as_objects(_to_balls(values))

    def first_precision(self, bits: int) -> int:
        """Guess the working precision: what a sum loses, and a difference of small inputs."""
        columns = [np.abs(np.ravel(x)).astype(np.float64) for x in self.inputs.values()]
        sizes = np.concatenate([*columns, np.zeros(0)])
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        small = -2 * math.frexp(float(sizes.min()))[1] if len(sizes) else 0
        return bits + 32 + len(sizes).bit_length() + min(max(small, 0), _SMALL_INPUTS)


def _ball_of(interval: Any) -> Any:
    """Return a ball that contains an mpmath interval."""
    if type(interval) is float:
        return interval
    ends = []
    for sign, mantissa, exponent, _ in interval._mpi_:
        if not mantissa and exponent:  # an infinite end
            raise Undecided
        ends.append(flint.arb((-int(mantissa) if sign else int(mantissa), exponent)))
    low, high = ends
    return low if interval._mpi_[0] == interval._mpi_[1] else low.union(high)


_to_balls = np.frompyfunc(_ball_of, 1, 1)


def _settle(
    problem: _Problem, goals: dict[_Key, _Goal], chosen: npt.NDArray[np.int64] | None = None
) -> tuple[dict[_Key, Any], int]:
    """Return every output (or Undefined) once its (chosen) elements are settled, and the precision.

    Raises OracleError.
    """
    done: dict[_Key, Any] = {}
    precision = problem.first_precision(max(goal.bits for goal in goals.values()))
    what = "a branch"
    while precision <= MAX_PRECISION:
        pending = [key for key in goals if key not in done]
        try:
            found = problem.outputs(precision, pending)
        except Undecided:
            what = "a branch"
            found = {}
        for key in (key for key in pending if key in found):
            if isinstance(found[key], Undefined):
                done[key] = found[key]
                continue
            flat = np.ravel(found[key])
            index = np.arange(len(flat)) if chosen is None else chosen
            unsettled = index[goals[key].open(flat[index])]
            if len(unsettled):
                name = "the value" if key is None else f"the gradient with respect to '{key}'"
                what = f"element {unsettled[0]} of {name}"
            else:
                done[key] = found[key]
        if len(done) == len(goals):
            return done, precision
        precision *= 2
    raise OracleError(f"{what} is not settled within {MAX_PRECISION} bits")


def evaluate(
    reference: ArrayReference,
    inputs: Mapping[str, Float64Array],
    wrt: Sequence[str],
    fmt: Format,
    gradient_fmt: Format | None = None,
    scale: Scale = "element",
    by: By = "balls",
    constants: Mapping[str, Any] | None = None,
) -> Exact:
    """Return the certified value and the gradients of its sum with respect to the inputs ``wrt``.

    ``inputs`` are passed to the reference as exact arrays and ``constants`` (indices, masks, numbers)
    as they are.  The value is settled for ``fmt`` and the gradients for ``gradient_fmt``, by element
    or, for ``scale="norm"``, relative to the largest element.  Raises OracleError.
    """
    problem = _Problem(reference, inputs, constants or {}, by)
    goals: dict[_Key, _Goal] = {None: _Goal(fmt)}
    goals.update((name, _Goal(gradient_fmt or fmt, scale)) for name in wrt)
    with precision_restored():
        found, precision = _settle(problem, goals)
        flint.ctx.prec = precision
        kinks = {key: why for key, why in found.items() if isinstance(why, Undefined)}
        outputs = {
            key: None if key in kinks else _output(problem, key, found[key], goals[key], precision)
            for key in goals
        }
    value = outputs[None]
    assert value is not None  # Undefined is raised by derivatives only
    return Exact(
        value,
        {name: outputs[name] for name in wrt},
        {str(key): str(why) for key, why in kinks.items()},
        precision,
    )


def _output(problem: _Problem, key: _Key, values: ObjectArray, goal: _Goal, precision: int) -> Output:
    flat = np.ravel(values)
    total = to_sum(flat)
    assert total.scale is not None
    numbers = np.flatnonzero(~is_float(flat))
    coarse = numbers[_bits(flat[numbers]) < goal.bits]
    for i in coarse:
        if _negligible(flat[i], goal.fmt):
            total.hi[i], total.lo[i], total.err[i] = 0.0, 0.0, 2.0**-10
            total.scale[i] = _floor(goal.fmt) + 10
    truth = TruthArray(goal.fmt, total)
    if goal.scale == "norm":
        truth.open[coarse] = False  # a binade means nothing where the error is not relative to it
    if truth.open.any():
        finer = np.ravel(problem.outputs(4 * precision, [key])[key])
        truth.settle(lambda i: _snapped(finer[i], goal.fmt))
    return Output(truth, values.shape, flat)


def _snapped(x: Any, fmt: Format) -> Fraction:
    """Return the middle of a ball, or the limit of a binade or of the format that lies within it."""
    middle = fraction(x)
    if not middle:
        return middle
    sign = 1 if middle > 0 else -1
    limits = [Fraction(2) ** k for k in (top(x) - 1, top(x))] + [overflow_threshold(fmt)]
    for limit in limits:
        if x.contains(flint.arb(flint.fmpq(sign * limit.numerator, limit.denominator))):
            return sign * limit
    return middle


def recompute(
    reference: ArrayReference,
    inputs: Mapping[str, Float64Array],
    indices: Indices,
    fmt: Format,
    wrt: str | None = None,
    scale: Scale = "element",
    constants: Mapping[str, Any] | None = None,
) -> list[Fraction | float]:
    """Return chosen elements (of the flattened output) by mpmath intervals, for printing.

    The output is the value, or the gradient with respect to the input ``wrt``.  Only the chosen
    elements are settled; an infinite or undefined one is a Python float, and all are nan at a kink.
    A KL divergence with its gradient takes about 0.2 ms an entry.  Raises OracleError.
    """
    chosen = np.asarray(indices, dtype=np.int64)
    problem = _Problem(reference, inputs, constants or {}, "intervals")
    with precision_restored():
        found, _ = _settle(problem, {wrt: _Goal(fmt, scale)}, chosen)
        if isinstance(found[wrt], Undefined):
            return [math.nan] * len(chosen)
        return [_printed(x, fmt) for x in np.ravel(found[wrt])[chosen]]
