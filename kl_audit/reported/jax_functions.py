"""Library functions of jax, as reports have them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def logaddexp2(x: Any, y: Any) -> Any:
    """Return log2(2**x + 2**y) by the library."""
    return jnp.logaddexp2(x, y)


def masked_logsumexp(a: Any, mask: Any) -> Any:
    """Return the logsumexp of the entries that a mask keeps, by the library."""
    return jax.nn.logsumexp(a, where=mask)


def signed_logsumexp(a: Any, b: Any) -> Any:
    """Return log(sum(b e**a)) by the library."""
    return jax.nn.logsumexp(a, b=b)


def sum_of_equal(x: Any, count: int) -> Any:
    """Return the library's sum of an array that holds one number ``count`` times."""
    return jnp.sum(jnp.broadcast_to(x, (count,)))


def running_sum_of_equal(x: Any, count: int) -> Any:
    """Return the sum of one number ``count`` times, one by one into one accumulator."""
    return jax.lax.fori_loop(0, count, lambda i, total: total + x, jnp.zeros_like(x))
