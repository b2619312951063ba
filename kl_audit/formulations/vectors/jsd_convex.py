"""The Jensen-Shannon divergence as a sum of one-signed terms in the log-ratio, never negative.

With r = log t / s of a token that both sides can draw and y = |r|, its share is max(s, t) psi(y),

    psi(y) = (-lc + e**-y (-y - lc)) / 2,   lc = log((1 + e**-y) / 2),

which is 0 at 0, rises to log(2) / 2 and is never below 0.  In x = y / 2, psi = e**-x E(x) with E(x) = x
sinh x - cosh x log cosh x even and of second order: for y <= 1 its Taylor series replaces the formula,
which would cancel.  A token of one side alone adds its probability times log(2) / 2.

r comes from ``divergence``, to u of itself when the rows are close.  The gradient for the student's
logits, s_k (g_k - sum s g) / 2 with g = log(s / m) = -x - log cosh x at x = r / 2, is attached, and the
teacher's likewise.  16-bit inputs are widened to float32, and so is the result.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.divergence import Divergence, centred, divergence
from kl_audit.formulations.vectors.exponentials import LOG_2, attach, widen

#: Taylor terms kept: log cosh has radius pi / 2, so at x = 1/2 each is a tenth of the one before.
TERMS = 18

Series = list[Fraction]  #: coefficients of 1, x, x^2, ...


def _product(a: Series, b: Series) -> Series:
    return [sum((a[i] * b[n - i] for i in range(n + 1)), Fraction(0)) for n in range(len(a))]


def _series() -> tuple[Series, Series]:
    """Return log cosh x and x sinh x - cosh x log cosh x."""
    n = 2 * TERMS + 2
    factorial = [Fraction(1, math.factorial(i)) for i in range(n)]
    cosh = [f if i % 2 == 0 else Fraction(0) for i, f in enumerate(factorial)]
    sinh = [f if i % 2 else Fraction(0) for i, f in enumerate(factorial)]
    tanh: Series = []
    for i in range(n):  # tanh cosh = sinh
        tanh.append(sinh[i] - sum((tanh[j] * cosh[i - j] for j in range(i)), Fraction(0)))
    log_cosh = [Fraction(0), *(t / (i + 1) for i, t in enumerate(tanh[:-1]))]
    x_sinh = [Fraction(0), *sinh[:-1]]
    even = [a - b for a, b in zip(x_sinh, _product(cosh, log_cosh), strict=True)]
    return log_cosh, even


LOG_COSH, EVEN = (tuple(float(c) for c in s[2::2]) for s in _series())


def _even(xp: Any, coefficients: tuple[float, ...], x: Any) -> Any:
    """Evaluate sum_n c_n x^(2n), n >= 1."""
    square = x * x
    total = xp.constant(coefficients[-1], x) * square
    for c in reversed(coefficients[:-1]):
        total = (total + xp.constant(c, x)) * square
    return total


def _log_cosh(xp: Any, x: Any) -> Any:
    """Evaluate log cosh x."""
    y = xp.abs(x)
    small = y <= 0.5
    near = _even(xp, LOG_COSH, xp.where(small, x, xp.constant(0.0, x)))
    return xp.where(small, near, y + xp.log1p(xp.exp(-2 * y)) - xp.constant(LOG_2, x))


def _psi(xp: Any, y: Any) -> Any:
    """Evaluate psi(y), y >= 0."""
    small = y <= 1
    x = xp.where(small, y, xp.constant(0.0, y)) / 2
    lc = xp.log1p(xp.exp(-y)) - xp.constant(LOG_2, y)
    far = (-lc + xp.exp(-y) * (-y - lc)) / 2
    return xp.where(small, xp.exp(-x) * _even(xp, EVEN, x), far)


def _gradient(xp: Any, probs: Any, d: Divergence, sign: int) -> Any:
    """Return p (g - sum p g) / 2 with g = log(p / m), for p on the side that ``sign`` says.

    A constant in g is of no consequence.  Rows with little in common have g close to log 2 almost
    everywhere, and then g - log 2 = -softplus(r) is what is computed.
    """
    r = sign * d.log_ratio
    apart = -(xp.clip(r, 0, None) + xp.log1p(xp.exp(-xp.abs(r))))
    g = xp.where(d.far, apart, -r / 2 - _log_cosh(xp, r / 2))
    alone = xp.like(~d.far, r) * xp.constant(LOG_2, r)
    return probs * centred(xp, xp.where(d.common, g, alone), probs) / 2


def convex(xp: Any, student: Any, teacher: Any) -> Any:
    """Evaluate sum max(s, t) psi(|log t / s|), and log(2) / 2 for mass on one side alone."""
    a, b = widen(xp, student), widen(xp, teacher)
    d = divergence(xp, a, b)
    share = xp.where(d.log_ratio > 0, d.q, d.p) * _psi(xp, xp.abs(d.log_ratio))
    both = xp.sum(xp.where(d.common, share, xp.constant(0.0, share)))
    value = both + (d.p_alone + d.q_alone) * xp.constant(LOG_2 / 2, a)
    return attach(xp, value, (_gradient(xp, d.p, d, 1), a), (_gradient(xp, d.q, d, -1), b))


VECTOR_FORMULATION = VectorFormulation(
    name="convex",
    quantity="jsd",
    fn=convex,
    formula="sum max(s, t) psi(|r|), r = log t / s, psi >= 0",
    source="kl-audit",
    sound=True,
)
