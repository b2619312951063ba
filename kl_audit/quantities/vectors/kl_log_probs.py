"""sum e**a (a - b) of two rows of log-probabilities, for trainers that are handed log-probabilities.

The rows are taken as they are.  Rounded to a dtype they no longer sum to 1, so the result may truly be
below 0: that is the input's rounding, not the formula's.  The terms are of both signs and of first order, so
nearly equal rows are ill-conditioned in any arithmetic; cases whose terms cancel below WORST are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kl_audit.formats import Float64Array, Format
from kl_audit.quantities.generators import pairs
from kl_audit.quantities.vector_base import Case, Generator, Input, VectorQuantity, rounded
from kl_audit.quantities.vectors.support import SIZES, support

#: The least a sum may be against the sum of its terms' sizes.
WORST = 2.0**-12


def _sum(ops: Any, first: Any, second: Any) -> Any:
    """Return sum e**first (first - second) over the tokens that the first row can draw."""
    kept = support(ops, first)
    if not set(kept) <= set(support(ops, second)):
        return ops.constant(np.inf, first)
    a, b = ops.take(first, kept), ops.take(second, kept)
    return ops.sum(ops.exp(a) * (a - b))


def forward(ops: Any, student: Any, teacher: Any) -> Any:
    """Return sum e**teacher (teacher - student)."""
    return _sum(ops, teacher, student)


def reverse(ops: Any, student: Any, teacher: Any) -> Any:
    """Return sum e**student (student - teacher)."""
    return _sum(ops, student, teacher)


def _log_softmax(z: Float64Array) -> Float64Array:
    shifted = z - np.max(z)
    out: Float64Array = shifted - np.log(np.sum(np.exp(shifted)))
    return out


def _cancels(a: Float64Array, b: Float64Array) -> bool:
    """Return whether the terms of a finite sum cancel to less than WORST of their size."""
    on = np.isfinite(a) & np.isfinite(b)
    terms = np.exp(a[on]) * (a[on] - b[on])
    return bool(abs(terms.sum()) < WORST * np.abs(terms).sum())


def _cases(first: str, second: str) -> Generator:
    def cases(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Case]:
        """Yield the log-probabilities, rounded to the format, of every kind of pair."""
        for pair in pairs(fmt, rng, size):
            inputs = {
                name: rounded(fmt, np.minimum(_log_softmax(z), 0.0))
                for name, z in (("student", pair.student), ("teacher", pair.teacher))
            }
            escapes = np.isfinite(inputs[first]) & ~np.isfinite(inputs[second])
            if _cancels(inputs[first], inputs[second]):
                continue
            yield Case(f"{pair.name}, V={size}", inputs, "infinite" if escapes.any() else pair.tag, size)

    return cases


_INPUTS = (
    Input("student", "log-probabilities of the policy"),
    Input("teacher", "log-probabilities of the reference", differentiated=False),
)

VECTOR = (
    VectorQuantity(
        name="kl-log-probs-forward",
        summary="sum_i exp(t_i) (t_i - s_i), of log-probabilities",
        inputs=_INPUTS,
        reference=forward,
        cases=_cases("teacher", "student"),
        sizes=SIZES,
        zero_on_identical=True,
    ),
    VectorQuantity(
        name="kl-log-probs-reverse",
        summary="sum_i exp(s_i) (s_i - t_i), of log-probabilities",
        inputs=_INPUTS,
        reference=reverse,
        cases=_cases("student", "teacher"),
        sizes=SIZES,
        zero_on_identical=True,
    ),
)
