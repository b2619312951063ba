"""Sums over the tokens of a sequence, and the importance ratio of a sequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kl_audit.formats import Format
from kl_audit.quantities.vector_base import Case, Input, VectorQuantity, rounded
from kl_audit.quantities.vectors.support import COUNTS

#: Expected total |log-ratio| of the drifted sequences: the ratio stays within float16.
DRIFT = 3.0


def sequence_sum(ops: Any, values: Any) -> Any:
    """Return the sum."""
    return ops.sum(values)


def sequence_ratio(ops: Any, policy: Any, old: Any) -> Any:
    """Return exp(sum(policy - old))."""
    return ops.exp(ops.sum(policy - old))


def sum_cases(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Case]:
    """Yield log-probabilities, ratios near 1, signed values and one large value among small ones."""
    one_large = np.full(size, 2.0**-6)
    one_large[0] = 256.0
    for name, values in (
        ("log-probabilities", -rng.exponential(1.0, size)),
        ("ratios near 1", np.exp(rng.normal(0, 0.05, size))),
        ("signed", rng.normal(0.5, 2, size)),
        ("one large", one_large),
    ):
        yield Case(f"{name}, n={size}", {"values": rounded(fmt, values)}, "", size)


def ratio_cases(fmt: Format, rng: np.random.Generator, size: int) -> Iterator[Case]:
    """Yield sequences of sampled log-probabilities: identical, nearly so, drifted, and far gone."""
    old = rounded(fmt, -rng.exponential(1.0, size))
    yield Case(f"identical, n={size}", {"policy": old, "old": old.copy()}, "identical", size)
    for name, drift in (
        ("noise 0.01", rng.normal(0, 0.01, size)),
        ("drift up", rng.exponential(DRIFT / size, size)),
        ("drift down", -rng.exponential(DRIFT / size, size)),
        ("far below", np.full(size, -8.0 / size)),
    ):
        policy = rounded(fmt, old + np.clip(drift, -4.0, 4.0))
        yield Case(f"{name}, n={size}", {"policy": policy, "old": old}, "", size)


def flat_sum(fmt: Format, n: int) -> Case:
    """Return n values of 1."""
    return Case(f"flat, n={n}", {"values": np.ones(n)}, "", n)


def flat_ratio(fmt: Format, n: int) -> Case:
    """Return n log-ratios of 2^-8, whose running sum stalls at 2^(p-8) in precision p."""
    return Case(f"flat, n={n}", {"policy": np.full(n, 2.0**-8), "old": np.zeros(n)}, "", n)


VECTOR = (
    VectorQuantity(
        name="sequence-sum",
        summary="sum_t x_t",
        inputs=(Input("values", "one number per token"),),
        reference=sequence_sum,
        cases=sum_cases,
        sizes=COUNTS,
        flat=flat_sum,
    ),
    VectorQuantity(
        name="sequence-ratio",
        summary="exp(sum_t (policy_t - old_t))",
        inputs=(
            Input("policy", "log-probabilities of the sampled tokens, policy that is trained"),
            Input("old", "the same of the policy that sampled", differentiated=False),
        ),
        reference=sequence_ratio,
        cases=ratio_cases,
        sizes=COUNTS,
        lower=lambda case: 0.0,
        flat=flat_ratio,
    ),
)
