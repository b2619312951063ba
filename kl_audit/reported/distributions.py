"""KLs of torch.distributions, and a divergence of logits of two dtypes, as reports have them."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributions import Beta, ContinuousBernoulli, Uniform, kl_divergence
from torch.nn import functional


def kl_of_uniform_and_beta(d: Any) -> Any:
    """Return KL(Uniform(0, 1) || Beta(e**d, 1)), which is k3(d)."""
    unit = torch.ones_like(d)
    return kl_divergence(Uniform(0 * unit, unit), Beta(torch.exp(d), unit)).sum()


def kl_of_continuous_bernoulli(a: Any, b: Any) -> Any:
    """Return the KL of two continuous Bernoulli, given by their logits."""
    return kl_divergence(ContinuousBernoulli(logits=a), ContinuousBernoulli(logits=b))


def jsd_of_mixed_dtypes(student: Any, teacher: Any) -> Any:
    """Return a divergence whose mixture is taken in log space, the teacher's side in its own dtype."""
    half = torch.tensor(0.5).log()  # without a dimension: it does not promote bfloat16
    log_s, log_t = functional.log_softmax(student, -1), functional.log_softmax(teacher, -1)
    log_m = torch.logsumexp(torch.stack([log_s + half, (log_t + half).to(log_s.dtype)]), 0)
    sides = [functional.kl_div(log_m, x, reduction="sum", log_target=True) for x in (log_s, log_t)]
    return 0.5 * (sides[0] + sides[1])


def kl_div_terms_of_probabilities(log_q: Any, p: Any) -> Any:
    """Return the terms of a ``kl_div`` whose target is given as probabilities."""
    return functional.kl_div(log_q, p, reduction="none")
