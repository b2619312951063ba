"""Functions as a user of torch may have them."""

import time
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn


def kl_penalty(logprob: torch.Tensor, ref_logprob: torch.Tensor, kl_penalty) -> torch.Tensor:
    """The shape of verl's function."""
    if kl_penalty in ("low_var_kl", "k3"):
        kl = torch.clamp(ref_logprob - logprob, min=-20, max=20)
        return torch.clamp(torch.exp(kl) - kl - 1, min=-10, max=10)
    if kl_penalty == "kl":
        return logprob - ref_logprob
    raise NotImplementedError(kl_penalty)


def compute_approx_kl(log_probs, log_probs_base, log_probs_old=None, kl_estimator="k1"):
    d = log_probs_base.float() - log_probs.float()
    return torch.expm1(d) - d if kl_estimator == "k3" else -d


def k3(log_ratio):
    return torch.expm1(log_ratio) - log_ratio


def loss_and_metrics(d):
    kl = torch.exp(d) - d - 1
    return kl, {"mean": kl.mean(), "kl": kl}


def two_arrays(d):
    return d, torch.exp(d) - d - 1


def as_dict(d):
    return {"loss": (torch.exp(d) - d - 1).mean(), "kl": torch.exp(d) - d - 1}


@dataclass
class Output:
    loss: torch.Tensor
    kl: torch.Tensor


class Pair(NamedTuple):
    loss: torch.Tensor
    kl: torch.Tensor


def as_dataclass(d):
    return Output((d * d).mean(), torch.expm1(d) - d)


def as_namedtuple(d):
    return Pair((d * d).mean(), torch.expm1(d) - d)


def four_estimates(d):
    return torch.stack([-d, d * d / 2, torch.expm1(d) - d, torch.exp(d)])


def needs_two_dimensions(log_probs, ref_log_probs, mask):
    batch, length = log_probs.shape
    d = ref_log_probs - log_probs
    return torch.where(mask, torch.expm1(d) - d, torch.zeros(batch, length))


def needs_bool_mask(logp, ref_logp, attention_mask=None):
    d = ref_logp - logp
    assert attention_mask is None or attention_mask.dtype == torch.bool
    return (torch.expm1(d) - d).masked_fill(~attention_mask, 0.0)


def needs_float_mask(logp, ref_logp, loss_mask):
    d = (ref_logp - logp) - (1 - loss_mask)
    return (torch.expm1(d) - d) * loss_mask


def masked_mean_loss(logp, ref_logp, mask):
    d = ref_logp - logp
    return ((torch.exp(d) - d - 1) * mask).sum() / mask.sum()


def per_sequence(logp, ref_logp, mask):
    d = ref_logp - logp
    return ((torch.exp(d) - d - 1) * mask).sum(-1) / mask.sum(-1)


def upcasts(d):
    return torch.expm1(d.float()) - d.float()


def prints(d):
    print("\nloss computed\nmore")
    warnings.warn("this loss is old", UserWarning, stacklevel=1)
    return torch.expm1(d) - d


def mutates(d):
    e = torch.expm1(d)
    d.neg_().add_(e)
    return d


def random(d):
    return torch.expm1(d) - d + 1e-3 * torch.rand(d.shape)


def numpy_random(d):
    return d * float(np.random.default_rng().uniform())


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, d):
        return self.drop(torch.expm1(d) - d)


_calls = {"warm": 0, "count": 0}


def warms_up(d):
    _calls["warm"] += 1
    return torch.expm1(d) - d if _calls["warm"] > 1 else torch.zeros_like(d)


def counts(d):
    _calls["count"] += 1
    return d + _calls["count"]


def sleeps(d):
    time.sleep(0.12)
    return torch.expm1(d) - d


def centred(d):
    kl = torch.expm1(d) - d
    return kl - kl.mean()


def raises(d):
    raise ValueError("no such thing\nsecond line")


def raises_below(d):
    return torch.stack(_helper(d))


def _helper(d):
    return [d, torch.zeros(3, 5)]


def exits(d):
    raise SystemExit(3)


def nothing(d):
    pass


def number(d):
    return float(d.sum())


def integers(d):
    return d.to(torch.int64)


def booleans(d):
    return d > 0


def to_float8(d):
    return d.to(torch.float8_e4m3fn)


def too_short(d):
    return d.reshape(-1)[:5]


def to_numpy(d):
    return np.expm1(d.detach().numpy())


def detached(d):
    return torch.expm1(d.detach()) - d.detach()


def log_of_negative(d):
    return torch.log(d)


class KLLoss(nn.Module):
    def __init__(self, kind="k3"):
        super().__init__()
        self.kind = kind

    def forward(self, new_logps, ref_logps, mask=None):
        d = ref_logps - new_logps
        return torch.expm1(d) - d


class NeedsArguments(nn.Module):
    def __init__(self, beta):
        super().__init__()


class Estimator:
    @staticmethod
    def of(d):
        return torch.expm1(d) - d

    @classmethod
    def made(cls, d):
        return cls.of(d)

    def bound(self, d):
        return self.of(d)


class Holder:
    """Instances cannot be called."""


class K3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, d):
        ctx.save_for_backward(d)
        return torch.expm1(d) - d

    @staticmethod
    def backward(ctx, grad):
        (d,) = ctx.saved_tensors
        return grad * torch.expm1(d)


class K3WithoutBackward(torch.autograd.Function):
    @staticmethod
    def forward(d):
        return torch.expm1(d) - d

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("no way back")


instance = KLLoss()
compiled = torch.compile(k3)
BETA = 0.1


def three_dimensional_bug(d):
    _, _ = d.shape
    raise ValueError("bug")
