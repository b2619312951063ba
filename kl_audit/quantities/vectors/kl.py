"""The full-vocabulary KL divergence of two rows of logits, in both directions.

Forward is KL(teacher || student), as in distillation; reverse is KL(student || teacher), as in the
penalty of reinforcement learning.  Either is infinite where its second argument gives no mass to a token
that the first can draw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kl_audit.formats import Format
from kl_audit.quantities.generators import pairs
from kl_audit.quantities.vector_base import Case, Generator, Input, VectorQuantity
from kl_audit.quantities.vectors.support import SIZES, STUDENT, TEACHER, kl


def forward(ops: Any, student: Any, teacher: Any) -> Any:
    """Return KL(teacher || student)."""
    return kl(ops, teacher, student)


def reverse(ops: Any, student: Any, teacher: Any) -> Any:
    """Return KL(student || teacher)."""
    return kl(ops, student, teacher)


def _cases(first: str, second: str) -> Generator:
    def cases(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Case]:
        """Yield every kind of pair; where the divergence is infinite the tag says so."""
        for pair in pairs(fmt, rng, size):
            inputs = {"student": pair.student, "teacher": pair.teacher}
            escapes = np.isfinite(inputs[first]) & ~np.isfinite(inputs[second])
            yield Case(f"{pair.name}, V={size}", inputs, "infinite" if escapes.any() else pair.tag, size)

    return cases


_INPUTS = (Input("student", STUDENT), Input("teacher", TEACHER, differentiated=False))

VECTOR = (
    VectorQuantity(
        name="kl-forward",
        summary="KL(teacher || student) = sum_i t_i (log t_i - log s_i), of logits",
        inputs=_INPUTS,
        reference=forward,
        cases=_cases("teacher", "student"),
        sizes=SIZES,
        lower=lambda case: 0.0,
        zero_on_identical=True,
    ),
    VectorQuantity(
        name="kl-reverse",
        summary="KL(student || teacher) = sum_i s_i (log s_i - log t_i), of logits",
        inputs=_INPUTS,
        reference=reverse,
        cases=_cases("student", "teacher"),
        sizes=SIZES,
        lower=lambda case: 0.0,
        zero_on_identical=True,
    ),
)
