"""The tape: arrays of exact scalars that remember how they were computed, and the reverse sweep."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kl_audit.oracle.scalars import Elements, ObjectArray
from kl_audit.oracle.truth import BoolArray

if TYPE_CHECKING:
    from kl_audit.oracle.elementwise import Elementwise

#: Turns the cotangent of a result into the cotangent of one of its parents, in that one's shape.
Rule = Callable[[Elements], Elements]
Parents = Sequence[tuple["Array", Rule]]

_order = itertools.count()


class Array:
    """An array of exact scalars and how it was computed.

    Supports + - * / unary -, ``**`` with an integer, and comparisons, which give boolean NumPy arrays
    or raise Undecided where an enclosure straddles.  NumPy arrays and numbers mix with it.
    """

    __array_ufunc__ = None  # a NumPy operand leaves the operation to this class

    def __init__(self, ops: Elementwise, elements: Elements, parents: Parents = ()) -> None:
        self.ops = ops
        self.elements = elements
        self.parents = parents
        self.order = next(_order)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.elements.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.elements.data.ndim

    @property
    def values(self) -> ObjectArray:
        """The scalars, with Python floats where an element is infinite or undefined."""
        return self.elements.mixed()

    def __add__(self, other: Any) -> Array:
        return self.ops.add(self, other)

    def __radd__(self, other: Any) -> Array:
        return self.ops.add(other, self)

    def __sub__(self, other: Any) -> Array:
        return self.ops.subtract(self, other)

    def __rsub__(self, other: Any) -> Array:
        return self.ops.subtract(other, self)

    def __mul__(self, other: Any) -> Array:
        return self.ops.multiply(self, other)

    def __rmul__(self, other: Any) -> Array:
        return self.ops.multiply(other, self)

    def __truediv__(self, other: Any) -> Array:
        return self.ops.divide(self, other)

    def __rtruediv__(self, other: Any) -> Array:
        return self.ops.divide(other, self)

    def __neg__(self) -> Array:
        return self.ops.negate(self)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return self.ops.abs(self)

    def __pow__(self, n: Any) -> Array:
        return self.ops.power(self, n)

    def __lt__(self, other: Any) -> BoolArray:
        return np.asarray(self.ops.compare(self, other) == -1)

    def __gt__(self, other: Any) -> BoolArray:
        return np.asarray(self.ops.compare(self, other) == 1)

    def __le__(self, other: Any) -> BoolArray:
        codes = self.ops.compare(self, other)
        return np.asarray((codes == -1) | (codes == 0))

    def __ge__(self, other: Any) -> BoolArray:
        codes = self.ops.compare(self, other)
        return np.asarray((codes == 1) | (codes == 0))

    def __eq__(self, other: Any) -> BoolArray:  # type: ignore[override]
        return np.asarray(self.ops.compare(self, other) == 0)

    def __ne__(self, other: Any) -> BoolArray:  # type: ignore[override]
        return np.asarray(self.ops.compare(self, other) != 0)

    __hash__ = object.__hash__


def gradient(output: Array, leaves: list[Array]) -> list[ObjectArray]:
    """Return the derivative of the sum of ``output`` with respect to each leaf, in its shape.

    The arrays hold scalars, and Python floats where the derivative is infinite or undefined.  Raises
    Undefined at a kink and Undecided where the precision is too low.
    """
    c = output.ops.arithmetic
    nodes = _between(output, leaves)
    wanted = {leaf.order for leaf in leaves}
    cotangents = {output.order: c.full(output.shape, 1)}
    for node in sorted(nodes.values(), key=lambda a: -a.order):
        g = cotangents[node.order] if node.order in wanted else cotangents.pop(node.order)
        for parent, rule in node.parents:
            if parent.order in nodes:
                part = rule(g)
                seen = cotangents.get(parent.order)
                cotangents[parent.order] = part if seen is None else c.add(seen, part)
    return [
        (cotangents[leaf.order] if leaf.order in nodes else c.full(leaf.shape, 0)).mixed() for leaf in leaves
    ]


def _between(output: Array, leaves: list[Array]) -> dict[int, Array]:
    """Return the nodes, by order, that the output depends on and that depend on a leaf."""
    found, waiting = {output.order: output}, [output]
    while waiting:
        for parent, _ in waiting.pop().parents:
            if parent.order not in found:
                found[parent.order] = parent
                waiting.append(parent)
    wanted = {leaf.order for leaf in leaves}
    kept: dict[int, Array] = {}
    for order in sorted(found):  # parents come before what is made of them
        if order in wanted or any(p.order in kept for p, _ in found[order].parents):
            kept[order] = found[order]
    return kept
