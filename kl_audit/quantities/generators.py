"""Where quantities of vectors are tried: rows of logits, pairs of rows, and tokens with masks.

Nothing covers a vocabulary, so cases are chosen for what breaks code: nearly equal pairs, one token that
has nearly all the mass, gaps beyond the range of exp, masked (-inf) logits, exact shifts, and masked slots
that hold NaN or infinities.  Every value is one of the format's own, so that the truth is the truth at
what the candidate sees.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kl_audit.formats import Float64Array, Format
from kl_audit.oracle.truth import BoolArray
from kl_audit.quantities.vector_base import Case, rounded

#: How far one logit is above the others, in nats.
GAPS = (12.0, 16.0, 20.0, 30.0, 60.0)
#: Standard deviations of ordinary logits.
SPREADS = (1.0, 4.0, 10.0)
#: Standard deviations of the noise that separates a nearly equal pair.
NOISES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
#: What shifted rows are shifted by; exact in every format for half-integers up to 8.
SHIFT = 32.0
HUGE = 1e4
INF = math.inf


@dataclass(frozen=True)
class Row:
    """One row of logits."""

    name: str
    logits: Float64Array
    tag: str = ""


@dataclass(frozen=True)
class Pair:
    """Two rows of logits over one vocabulary."""

    name: str
    student: Float64Array
    teacher: Float64Array
    tag: str = ""


def _half_integers(rng: np.random.Generator, size: int) -> Float64Array:
    """Logits to which SHIFT can be added exactly in every format."""
    return np.clip(np.round(2 * rng.normal(0, 2, size)) / 2, -8.0, 8.0)


def concentrated(fmt: Format, rng: np.random.Generator, size: int, gap: float, at: int = 0) -> Float64Array:
    """Return logits of which number ``at`` is ``gap`` above the greatest of the others."""
    z = rng.normal(0, 0.5, size)
    others = np.delete(z, at)
    z[at] = (others.max() if others.size else 0.0) + gap
    return rounded(fmt, z)


def hidden(z: Float64Array, keep: BoolArray) -> Float64Array:
    """Return logits with -inf where ``keep`` is false."""
    return np.where(keep, z, -INF)


def _support(rng: np.random.Generator, size: int) -> BoolArray:
    """Choose which tokens stay: about two thirds, at least one in and one out."""
    keep = np.asarray(rng.random(size) < 2 / 3)
    keep[0], keep[-1] = True, False
    return keep


def rows(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Row]:
    """Yield rows of ``size`` logits, and at the smallest sizes the rows of public reports."""
    for s in SPREADS:
        yield Row(f"normal, s={s:g}", rounded(fmt, rng.normal(0, s, size)))
    yield Row("uniform", np.zeros(size))
    if size == 1:
        return
    for gap in GAPS:
        yield Row(f"concentrated, gap {gap:g}", concentrated(fmt, rng, size, gap, size // 2))
    for gap in (16.0, 30.0):
        z = concentrated(fmt, rng, size, gap, size // 2)
        yield Row(f"concentrated at 0, gap {gap:g}", rounded(fmt, z - z[size // 2]))
    base = _half_integers(rng, size)
    yield Row("before the shift", base)
    yield Row(f"shifted by {SHIFT:g}", base + SHIFT, "shifted")
    yield Row(f"shifted by {-SHIFT:g}", base - SHIFT, "shifted")
    z = rounded(fmt, rng.normal(0, 1, size))
    for sign in (1.0, -1.0):
        far = z.copy()
        far[0] = sign * rounded(fmt, HUGE)
        yield Row(f"one logit at {far[0]:g}", far)
    z = rounded(fmt, rng.normal(0, 2, size))
    yield Row("some -inf", hidden(z, _support(rng, size)))
    yield Row("all but one -inf", hidden(z, np.arange(size) == 0))
    if size == 2:
        yield Row("(64, 51)", np.array([64.0, 51.0]))
        if fmt.name == "float16":
            yield Row("(65504, -65504)", np.array([65504.0, -65504.0]))
    if size in (4, 8):
        yield Row("(0, 0, -9, -9)", np.array([0.0, 0.0, -9.0, -9.0]))


def _near(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Pair]:
    """Yield pairs that differ by noise; noise that rounding removes altogether yields no pair."""
    for noise in NOISES:
        student = rounded(fmt, rng.normal(0, 2, size))
        teacher = rounded(fmt, student + rng.normal(0, noise, size))
        if np.any(student - teacher != (student - teacher)[0]):
            yield Pair(f"near, noise {noise:g}", student, teacher)


def _identical(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Pair]:
    for s in SPREADS:
        z = rounded(fmt, rng.normal(0, s, size))
        yield Pair(f"identical, s={s:g}", z, z.copy(), "identical")
    z = concentrated(fmt, rng, size, 30.0)
    yield Pair("identical, concentrated", z, z.copy(), "identical")
    z = hidden(rounded(fmt, rng.normal(0, 2, size)), _support(rng, size))
    yield Pair("identical, some -inf", z, z.copy(), "identical")


def _concentrated_pairs(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Pair]:
    for gap in GAPS:
        student = concentrated(fmt, rng, size, gap)
        yield Pair(f"concentrated alike, gap {gap:g}", student, concentrated(fmt, rng, size, gap - 1))
        yield Pair(f"concentrated apart, gap {gap:g}", student, concentrated(fmt, rng, size, gap, size - 1))
        spread = rounded(fmt, rng.normal(0, 1, size))
        yield Pair(f"student concentrated, gap {gap:g}", student, spread)
        yield Pair(f"teacher concentrated, gap {gap:g}", spread, student)


def _masked_pairs(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Pair]:
    a, b = (rounded(fmt, rng.normal(0, 2, size)) for _ in range(2))
    keep = _support(rng, size)
    yield Pair("some -inf on both sides", hidden(a, keep), hidden(b, keep))
    yield Pair("-inf in the student only", hidden(a, keep), b)
    yield Pair("-inf in the teacher only", a, hidden(b, keep))
    one = np.arange(size) == 0
    yield Pair("all but one -inf on both sides", hidden(a, one), hidden(b, one))


def pairs(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Pair]:
    """Yield pairs of rows of ``size`` logits."""
    for s in SPREADS:
        a, b = (rounded(fmt, rng.normal(0, s, size)) for _ in range(2))
        yield Pair(f"normal, s={s:g}", a, b)
    yield from _near(fmt, rng, size)
    yield from _identical(fmt, rng, size)
    yield from _concentrated_pairs(fmt, rng, size)
    yield from _masked_pairs(fmt, rng, size)
    a, b = _half_integers(rng, size), _half_integers(rng, size)
    b[0] += 1.0 if b[0] == a[0] else 0.0
    yield Pair("before the shift", a, b)
    yield Pair(f"shifted by {SHIFT:g}", a + SHIFT, b + SHIFT, "shifted")
    yield Pair(f"shifted apart by {SHIFT:g}", a, b + SHIFT, "shifted")
    spread = rounded(fmt, rng.normal(0, 1, size))
    far = spread.copy()
    far[0] = rounded(fmt, HUGE)
    yield Pair("student far above", far, spread)
    yield Pair("teacher far above", spread, far)
    far = spread.copy()
    far[0] = rounded(fmt, -HUGE)
    yield Pair("student far below", far, spread)


def tokens(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Case]:
    """Yield ``values`` and ``mask`` of one sequence of ``size`` tokens."""

    def case(name: str, values: Float64Array, mask: BoolArray, tag: str = "") -> Case:
        return Case(f"{name}, n={size}", {"values": values, "mask": mask}, tag, size)

    every = np.ones(size, dtype=bool)
    half = np.asarray(rng.random(size) < 0.5)
    half[0], half[-1] = True, size == 1
    normal = rounded(fmt, rng.normal(1, 2, size))
    yield case("all kept", normal, every)
    yield case("half kept", normal, half)
    yield case("k3-like, half kept", rounded(fmt, rng.exponential(0.01, size)), half)
    spike = rounded(fmt, rng.exponential(0.01, size))
    spike[0] = rounded(fmt, 3e4)
    yield case("one spike", spike, every)
    yield case("equal, half kept", np.ones(size), half)
    for fill in (math.nan, INF, -INF, -1e10):
        held = float(rounded(fmt, fill))
        if size > 1:
            yield case(f"masked slots hold {fill:g}", np.where(half, normal, held), half, "masked")
    yield case("all masked", normal, ~every, "all-masked")
    yield case("all masked and nan", np.full(size, math.nan), ~every, "all-masked")
