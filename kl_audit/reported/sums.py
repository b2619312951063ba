"""Sums as reports have them: one number after another, in the type of the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


def running_sum(values: Any) -> Any:
    """Return the sum of the values, one by one into one accumulator of their own type."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def running_mean(values: Any) -> Any:
    """Return such a sum over the count."""
    return running_sum(values) / len(values)


def numpy_column_sum(values: Any) -> Any:
    """Return NumPy's sum along the first axis of two equal columns, for the first of them."""
    return np.sum(np.stack([values, values], axis=1), axis=0)[0]
