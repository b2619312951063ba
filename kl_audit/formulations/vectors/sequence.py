"""Sums over a sequence and the ratio exp(sum(policy - old)): in the dtype, one by one, in float32.

``sequential`` stalls at 2^p times the addend.  ``exp-of-sum`` in bfloat16 rounds the sum s to half an
ulp, a relative error of the ratio of up to |s| u.  ``product-of-exps`` rounds n factors near 1, each to
u: n u in all, and a factor 1 + d with |d| < u is lost.  In float32 the sum of n terms is off by n u sum
|d| at most.
"""

from __future__ import annotations

from typing import Any

from kl_audit.formulations.vector_base import VectorFormulation
from kl_audit.formulations.vectors.exponentials import widen
from kl_audit.formulations.vectors.running import running_product, running_sum


def library(xp: Any, values: Any) -> Any:
    """Call the framework's sum."""
    return xp.sum(values)


def sequential(xp: Any, values: Any) -> Any:
    """Add one by one in the dtype; at most LONGEST numbers."""
    return running_sum(values)


def upcast(xp: Any, values: Any) -> Any:
    """Sum in float32."""
    return xp.sum(widen(xp, values))


def exp_of_sum(xp: Any, policy: Any, old: Any) -> Any:
    """Evaluate exp(sum(policy - old)) in the dtype."""
    return xp.exp(xp.sum(policy - old))


def product_of_exps(xp: Any, policy: Any, old: Any) -> Any:
    """Multiply the token ratios one by one in the dtype; at most LONGEST of them."""
    return running_product(xp.exp(policy - old))


def ratio_upcast(xp: Any, policy: Any, old: Any) -> Any:
    """Evaluate exp(sum(policy - old)) in float32."""
    return exp_of_sum(xp, widen(xp, policy), widen(xp, old))


VECTOR_FORMULATION = (
    VectorFormulation("library", "sequence-sum", library, "sum(x)", "torch, jax"),
    VectorFormulation("sequential", "sequence-sum", sequential, "x_0 + x_1 + ...",
                      "candle pull request 3718"),
    VectorFormulation("upcast", "sequence-sum", upcast, "sum(float32(x))", "kl-audit", True),
    VectorFormulation("exp-of-sum", "sequence-ratio", exp_of_sum, "exp(sum(p - o))", "GSPO, common"),
    VectorFormulation("product-of-exps", "sequence-ratio", product_of_exps, "prod(exp(p - o))", "common"),
    VectorFormulation("upcast", "sequence-ratio", ratio_upcast, "exp(sum(float32(p) - float32(o)))",
                      "kl-audit", True),
)  # fmt: skip
