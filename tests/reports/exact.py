"""The formulas of the reports in mpmath, on the inputs as they are stored."""

from __future__ import annotations

import math
from typing import Any

from mpmath import mp, mpf

Vector = list[Any]


def k3(d: Any) -> Any:
    """Return exp(d) - d - 1."""
    return mp.exp(d) - d - 1


def log_softmax(z: Vector) -> Vector:
    """Return z - log sum e**z; -inf stays."""
    kept = [x for x in z if x != -math.inf]
    top = max(kept)
    total = top + mp.log(mp.fsum(mp.exp(x - top) for x in kept))
    return [x - total if x != -math.inf else mpf("-inf") for x in z]


def softmax(z: Vector) -> Vector:
    """Return e**z over its sum."""
    return [mp.exp(x) for x in log_softmax(z)]


def kl(a: Vector, b: Vector) -> Any:
    """Return KL(softmax(a) || softmax(b)); tokens at -inf in a count for nothing."""
    pairs = [(x, y) for x, y in zip(log_softmax(a), log_softmax(b), strict=True) if x != mpf("-inf")]
    return mp.fsum(mp.exp(x) * (x - y) for x, y in pairs)


def kl_forward(student: Vector, teacher: Vector) -> Any:
    """Return KL(teacher || student)."""
    return kl(teacher, student)


def kl_reverse(student: Vector, teacher: Vector) -> Any:
    """Return KL(student || teacher)."""
    return kl(student, teacher)


def jsd(student: Vector, teacher: Vector) -> Any:
    """Return (KL(s || m) + KL(t || m)) / 2, m = (s + t) / 2."""
    s, t = softmax(student), softmax(teacher)
    m = [(x + y) / 2 for x, y in zip(s, t, strict=True)]
    parts = (mp.fsum(x * mp.log(x / y) for x, y in zip(p, m, strict=True)) for p in (s, t))
    return mp.fsum(parts) / 2


def entropy(logits: Vector) -> Any:
    """Return -sum p log p over the tokens with mass."""
    return -mp.fsum(mp.exp(x) * x for x in log_softmax(logits) if x != mpf("-inf"))


def total(values: Vector) -> Any:
    """Return the sum."""
    return mp.fsum(values)


def zero(*args: Any, **inputs: Any) -> Any:
    """Return 0: the right result whatever the inputs."""
    return mpf(0)


def one(*args: Any, **inputs: Any) -> Any:
    """Return 1: the right result whatever the inputs."""
    return mpf(1)
