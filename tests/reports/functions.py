"""Small functions in the shape of the code that the reports are about."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch.distributions import Beta, ContinuousBernoulli, Uniform, kl_divergence


def kl_div_of_probabilities(student, teacher):
    """kl_div with a target that is given as probabilities."""
    return F.kl_div(F.log_softmax(student, -1), F.softmax(teacher, -1), reduction="sum")


def kl_div_of_log_probabilities(student, teacher):
    return F.kl_div(F.log_softmax(student, -1), F.log_softmax(teacher, -1), reduction="sum", log_target=True)


def selected_log_prob(logits, index):
    return F.log_softmax(logits, dim=-1).gather(-1, index.reshape(1)).squeeze(-1)


def topk_forward(student, teacher, k):
    """The teacher's top k terms of KL(teacher || student), clamped at 0."""
    log_t, log_s = F.log_softmax(teacher, -1), F.log_softmax(student, -1)
    log_p, ids = torch.topk(log_t, k)
    return (log_p.exp() * (log_p - log_s.gather(-1, ids))).sum(-1).clamp_min(0)


def topk_reverse(student, teacher, k):
    """The terms of KL(student || teacher) at the teacher's top k, clamped at 0."""
    log_t, log_s = F.log_softmax(teacher, -1), F.log_softmax(student, -1)
    log_p, ids = torch.topk(log_t, k)
    log_q = log_s.gather(-1, ids)
    return (log_q.exp() * (log_q - log_p)).sum(-1).clamp_min(0)


def running_log_prob(logits, index):
    """A log-softmax whose denominator is a running sum in the dtype of the logits."""
    top = logits.max()
    total = torch.zeros_like(logits[0])
    for term in torch.exp(logits - top):
        total = total + term
    return (logits.gather(-1, index.reshape(1)).squeeze(-1) - top).float() - total.float().log()


def running_sum(values):
    """A running sum in the dtype of the values."""
    total = torch.zeros_like(values[0])
    for value in values:
        total = total + value
    return total


def jsd_of_mixed_dtypes(student, teacher):
    """The mixture in log space, each side in its own dtype until it is stacked."""
    half = torch.tensor(0.5).log()  # without a dimension: it does not promote bfloat16
    log_s, log_t = F.log_softmax(student, -1), F.log_softmax(teacher, -1)
    log_m = torch.logsumexp(torch.stack([log_s + half, (log_t + half).to(log_s.dtype)]), 0)
    parts = (F.kl_div(log_m, x, reduction="sum", log_target=True) for x in (log_s, log_t))
    return 0.5 * sum(parts)


def generalized_jsd(student, teacher, beta):
    """beta KL(t || m) + (1 - beta) KL(s || m), but a plain KL at beta = 0 and at beta = 1."""
    log_s, log_t = F.log_softmax(student, -1), F.log_softmax(teacher, -1)
    if beta == 0:
        return F.kl_div(log_s, log_t, reduction="sum", log_target=True)
    if beta == 1:
        return F.kl_div(log_t, log_s, reduction="sum", log_target=True)
    log_m = torch.logsumexp(torch.stack([log_s + math.log(1 - beta), log_t + math.log(beta)]), 0)
    kl_t = F.kl_div(log_m, log_t, reduction="sum", log_target=True)
    return beta * kl_t + (1 - beta) * F.kl_div(log_m, log_s, reduction="sum", log_target=True)


def kl_of_uniform_and_beta(d):
    """KL(Uniform(0, 1) || Beta(e**d, 1)), which is k3(d)."""
    unit = torch.ones_like(d)
    return kl_divergence(Uniform(0 * unit, unit), Beta(torch.exp(d), unit)).sum()


def kl_of_continuous_bernoulli(a, b):
    """The KL of two of them, given by their logits."""
    return kl_divergence(ContinuousBernoulli(logits=a), ContinuousBernoulli(logits=b))


def reciprocal_of_elu(x):
    y = F.elu(x, alpha=1.24)
    return 1 / (y + torch.exp(y))


def cross_entropy_minus_entropy(student, teacher):
    """KL(teacher || student) as a difference of two numbers of the size of log V."""
    p = jax.nn.softmax(teacher)
    cross_entropy = jax.nn.logsumexp(student) - jnp.sum(p * student)
    return cross_entropy + jnp.sum(p * (teacher - jax.nn.logsumexp(teacher)))


def weighted_log_softmax(w, x):
    """The tangent of a cross entropy by its labels."""
    return jnp.sum(w * jax.nn.log_softmax(x))
