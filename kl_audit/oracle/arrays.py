"""Exact arithmetic on arrays, with exact derivatives: the vocabulary of the back ends, once more.

An expression that runs on a framework's arrays runs here on arrays of Arb balls or mpmath intervals,
and a tape of its operations gives the exact vector-Jacobian product.  The meaning is that of real
numbers: ``cast`` and ``like`` do nothing, what ``where`` does not select contributes nothing, and a
derivative at a kink (a tie of ``maximum``, the edge of ``clip``) is refused with Undefined.

An element that is exactly -inf is a masked one: no derivative passes through exp or softmax there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kl_audit.errors import UsageError
from kl_audit.oracle.elementwise import Elementwise
from kl_audit.oracle.exact import UNKNOWN
from kl_audit.oracle.scalars import NAN, Codes, Elements
from kl_audit.oracle.tape import Array, Rule, gradient

__all__ = ["Array", "ArrayOps", "gradient"]


class ArrayOps(Elementwise):
    """The vocabulary on exact arrays: ``ArrayOps(BallOps())`` or ``ArrayOps(IntervalOps(bits))``."""

    # Reductions

    def sum(self, a: Any, axis: int | None = None) -> Array:
        """The sum over an axis, or over all."""
        x, c = self.lift(a), self.arithmetic

        def rule(g: Elements) -> Elements:
            return _kept(g, axis).map(lambda v: np.broadcast_to(v, x.shape))

        return Array(self, c.sum(x.elements, axis), [(x, rule)])

    def mean(self, a: Any, axis: int | None = None) -> Array:
        """The mean over an axis, or over all."""
        x = self.lift(a)
        count = x.elements.data.size if axis is None else x.shape[axis]
        return self.sum(x, axis) / count

    def max(self, a: Any, axis: int | None = None) -> Array:
        """The largest element; its derivative is undefined where several are largest."""
        x, c = self.lift(a), self.arithmetic
        if axis is None:
            return self.max(self.reshape(x, (-1,)), 0)
        top = c.largest(x.elements, axis)

        def rule(g: Elements) -> Elements:
            codes = _selection(c.compare(x.elements, top), axis)
            wide = _kept(g, axis).map(lambda v: np.broadcast_to(v, x.shape))
            return c.branch(wide, codes, 1, 0, "several elements are the largest (or smallest)")

        return Array(self, top.map(lambda v: np.squeeze(v, axis)), [(x, rule)])

    def min(self, x: Any, axis: int | None = None) -> Array:
        """The smallest element; its derivative is undefined where several are smallest."""
        return -self.max(-self.lift(x), axis)

    def _exponentials(self, x: Elements, axis: int) -> tuple[Elements, Elements, Elements]:
        """Return (e**(x - shift), its sum, shift), the axis kept; the shift keeps e**x in range."""
        c = self.arithmetic
        shift = c.point(c.largest(x, axis))
        e = c.unary("exp", c.subtract(x, shift))
        return e, c.sum(e, axis, keepdims=True), shift

    def logsumexp(self, a: Any, axis: int = -1) -> Array:
        """log(sum(e**a)), -inf where all of a is; its derivative is softmax."""
        x, c = self.lift(a), self.arithmetic
        e, total, shift = self._exponentials(x.elements, axis)
        value = c.add(c.unary("log", total), shift)

        def rule(g: Elements) -> Elements:
            return c.scaled(_kept(g, axis), c.divide(e, total))

        return Array(self, value.map(lambda v: np.squeeze(v, axis)), [(x, rule)])

    # Along an axis

    def softmax(self, a: Any, axis: int = -1) -> Array:
        """e**a / sum(e**a); 0 where a is -inf, which has no derivative then."""
        x, c = self.lift(a), self.arithmetic
        e, total, _ = self._exponentials(x.elements, axis)
        p = c.divide(e, total)

        def rule(g: Elements) -> Elements:
            if x.elements.special is not None:
                masked = np.isneginf(x.elements.special) & (c.signs(p) == 0)
                g = c.where(masked, c.number(0), g)
            centre = c.sum(c.scaled(g, p), axis, keepdims=True)
            return c.scaled(c.subtract(g, centre), p)

        return Array(self, p, [(x, rule)])

    def log_softmax(self, a: Any, axis: int = -1) -> Array:
        """a - logsumexp(a)."""
        x, c = self.lift(a), self.arithmetic
        e, total, shift = self._exponentials(x.elements, axis)
        value = c.subtract(c.subtract(x.elements, shift), c.unary("log", total))

        def rule(g: Elements) -> Elements:
            whole = c.sum(g, axis, keepdims=True)
            return c.subtract(g, c.scaled(whole, c.divide(e, total)))

        return Array(self, value, [(x, rule)])

    def cumsum(self, a: Any, axis: int = -1) -> Array:
        """The cumulative sum along an axis."""
        x, c = self.lift(a), self.arithmetic

        def rule(g: Elements) -> Elements:
            backwards = c.cumsum(g.map(lambda v: np.flip(v, axis)), axis)
            return backwards.map(lambda v: np.flip(v, axis))

        return Array(self, c.cumsum(x.elements, axis), [(x, rule)])

    # Rearrangements

    def take(self, a: Any, index: Any, axis: int = -1) -> Array:
        """Entries along an axis: an int drops it; raises UsageError for an index out of range."""
        x, c = self.lift(a), self.arithmetic
        where = np.asarray(index, dtype=np.int64)
        try:
            out = x.elements.map(lambda v: np.take(v, where, axis=axis))
        except (IndexError, ValueError):
            raise UsageError(f"index out of range: take from an axis of {x.shape[axis]} entries") from None
        along = axis % x.ndim

        def rule(g: Elements) -> Elements:
            source = range(along, along + where.ndim)
            moved = g.map(lambda v: np.moveaxis(v, source, range(where.ndim)))
            data = np.full(x.shape, c.zero, dtype=object)
            np.add.at(np.moveaxis(data, along, 0), where, moved.data)
            if moved.special is None:
                return Elements(data)
            special = np.zeros(x.shape)
            with np.errstate(invalid="ignore"):
                np.add.at(np.moveaxis(special, along, 0), where, moved.special)
            return c.override(data, special)

        return Array(self, out, [(x, rule)])

    def reshape(self, a: Any, shape: tuple[int, ...]) -> Array:
        """The same values in another shape."""
        x = self.lift(a)
        rule = [(x, lambda g: g.map(lambda v: np.reshape(v, x.shape)))]
        return Array(self, x.elements.map(lambda v: np.reshape(v, shape)), rule)

    def concat(self, arrays: Iterable[Any]) -> Array:
        """Join along the last axis."""
        parts = [self.lift(a) for a in arrays]
        ends = np.cumsum([p.shape[-1] for p in parts])

        def rule(start: int, end: int) -> Rule:
            return lambda g: g.map(lambda v: v[..., start:end])

        rules = [(p, rule(int(end) - p.shape[-1], int(end))) for p, end in zip(parts, ends, strict=True)]
        return Array(self, _joined(np.concatenate, parts, axis=-1), rules)

    def stack(self, arrays: Iterable[Any]) -> Array:
        """Join along a new first axis."""
        parts = [self.lift(a) for a in arrays]

        def rule(i: int) -> Rule:
            return lambda g: g.map(lambda v: v[i])

        return Array(self, _joined(np.stack, parts, axis=0), [(p, rule(i)) for i, p in enumerate(parts)])

    # Two arrays, along a new axis

    def logaddexp(self, a: Any, b: Any) -> Array:
        """log(e**a + e**b)."""
        x, y = self._broadcast(self.lift(a), self.lift(b))
        return self.logsumexp(self.stack([x, y]), axis=0)

    def _broadcast(self, x: Array, y: Array) -> tuple[Array, Array]:
        shape = np.broadcast_shapes(x.shape, y.shape)
        wide = [
            Array(self, a.elements.map(lambda v: np.broadcast_to(v, shape)), [(a, self._to(a))])
            for a in (x, y)
        ]
        return wide[0], wide[1]


def _kept(g: Elements, axis: int | None) -> Elements:
    """Put back the axis that a reduction dropped; None stands for all, and broadcasts anyway."""
    return g if axis is None else g.map(lambda v: np.expand_dims(v, axis))


def _selection(codes: Codes, axis: int) -> Codes:
    """Turn the order of elements and their largest into branches: selected, not selected, open."""
    candidate = codes != -1
    exact = np.all(~candidate | (codes == 0), axis=axis, keepdims=True)
    several = np.sum(candidate, axis=axis, keepdims=True) > 1
    chosen = np.where(several, np.where(exact, 0, UNKNOWN), 1)
    out = np.where(candidate, chosen, -1)
    return np.where(codes == NAN, NAN, out).astype(np.int8)


def _joined(join: Callable[..., Any], parts: list[Array], axis: int) -> Elements:
    data = join([p.elements.data for p in parts], axis=axis)
    if all(p.elements.special is None for p in parts):
        return Elements(data)
    return Elements(data, join([p.elements.specials() for p in parts], axis=axis))
