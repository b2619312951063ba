"""Library calls of torch, as reports have them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


def kl_div_of_probabilities(student: Any, teacher: Any) -> Any:
    """Return a ``kl_div`` whose target is given as probabilities."""
    return functional.kl_div(
        functional.log_softmax(student, -1), functional.softmax(teacher, -1), reduction="sum"
    )


def kl_div_of_log_probabilities(student: Any, teacher: Any) -> Any:
    """Return a ``kl_div`` whose target is given as log-probabilities."""
    return functional.kl_div(
        functional.log_softmax(student, -1),
        functional.log_softmax(teacher, -1),
        reduction="sum",
        log_target=True,
    )


def kl_div_terms(student: Any, teacher: Any) -> Any:
    """Return the terms of a ``kl_div`` of log-probabilities, before they are added."""
    return functional.kl_div(
        functional.log_softmax(student, -1),
        functional.log_softmax(teacher, -1),
        reduction="none",
        log_target=True,
    )


def selected_log_prob(logits: Any, index: Any) -> Any:
    """Return the log-probability of one token."""
    return functional.log_softmax(logits, dim=-1).gather(-1, index.reshape(1)).squeeze(-1)


def reciprocal_of_elu(x: Any) -> Any:
    """Return 1/(y + exp(y)) of y = elu(x), which has a pole near x = -0.6113."""
    y = functional.elu(x, alpha=1.24)
    return 1 / (y + torch.exp(y))


def product_in_tf32(x: Any, w: Any) -> Any:
    """Return a matrix product of one row and one column, with TF32 allowed where a GPU has it."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return (x.reshape(1, -1) @ w.reshape(-1, 1)).reshape(1)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def rounding_error_of_sum(x: Any, y: Any) -> Any:
    """Return what the sum x + y loses of y, which is 0 where the sum is kept in a wider type."""
    return y - ((x + y) - x)


def through_bfloat16(x: Any) -> Any:
    """Return float32 numbers as bfloat16 stores them."""
    return x.to(torch.bfloat16).to(torch.float32)
