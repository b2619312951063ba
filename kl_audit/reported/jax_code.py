"""Code of jax, as reports have it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def cross_entropy_minus_entropy(student: Any, teacher: Any) -> Any:
    """Return KL(teacher || student) as a difference of two numbers of the size of log V."""
    p = jax.nn.softmax(teacher)
    cross_entropy = jax.nn.logsumexp(student) - jnp.sum(p * student)
    return cross_entropy + jnp.sum(p * (teacher - jax.nn.logsumexp(teacher)))


def dot(x: Any, w: Any) -> Any:
    """Return a product of two vectors at the default precision of the device."""
    return jnp.dot(x, w)
