"""Sums and products of one number after another, as a kernel with one accumulator forms them."""

from __future__ import annotations

from typing import Any

#: Longest sequence that is unrolled.
LONGEST = 4096


def _length(x: Any) -> int:
    n = int(x.shape[0])
    if n > LONGEST:
        raise ValueError(f"a sequence of {n} is too long to unroll (at most {LONGEST})")
    return n


def running_sum(x: Any) -> Any:
    """Return x_0 + x_1 + ..., rounded after every step; raises ValueError beyond LONGEST."""
    total = x[0]
    for i in range(1, _length(x)):
        total = total + x[i]
    return total


def running_product(x: Any) -> Any:
    """Return x_0 x_1 ..., rounded after every step; raises ValueError beyond LONGEST."""
    total = x[0]
    for i in range(1, _length(x)):
        total = total * x[i]
    return total
