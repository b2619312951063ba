"""Log-probabilities in torch, as reports have them."""

from __future__ import annotations

from typing import Any

import torch

#: Of the layer that turns hidden states into logits.
VOCABULARY = 5000


def running_log_prob(logits: Any, index: Any) -> Any:
    """Return a log-softmax in float32 whose denominator is a running sum in the dtype of the logits."""
    top = logits.max()
    total = _running_sum(torch.exp(logits - top))
    return (logits.gather(-1, index.reshape(1)).squeeze(-1) - top).float() - total.float().log()


def running_softmax(logits: Any) -> Any:
    """Return a softmax whose denominator is a running sum in the dtype of the logits."""
    e = torch.exp(logits - logits.max())
    return e / _running_sum(e)


def _running_sum(values: Any) -> Any:
    total = torch.zeros_like(values[0])
    for value in values:
        total = total + value
    return total


def ratio_to_float32(x: Any) -> Any:
    """Return exp(log p - log p') of the first token, log p from float32 logits, log p' in their own type."""
    return torch.exp(torch.log_softmax(x.float(), -1)[0] - torch.log_softmax(x, -1)[0].float())


def batch_ratios(hidden: Any, rows: int) -> Any:
    """Return, for each row of hidden states, exp(log p alone - log p in a batch) of its best token."""
    states = hidden.reshape(rows, -1)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(VOCABULARY, states.shape[1], generator=generator).to(states)
    weights = weights * 2 / states.shape[1] ** 0.5
    together = torch.log_softmax((states @ weights.T).float(), -1)
    alone = torch.cat([torch.log_softmax((row[None] @ weights.T).float(), -1) for row in states])
    return torch.exp((alone - together).gather(-1, together.argmax(-1, keepdim=True))).squeeze(-1)
