"""Functions as a user of JAX may have them."""

import functools

import jax
import jax.numpy as jnp


def compute_kl_divergence(per_token_logps, ref_per_token_logps, method="low_var_kl", clamp_value=None):
    """The shape of tunix's function."""
    d = ref_per_token_logps.astype(jnp.float32) - per_token_logps.astype(jnp.float32)
    kl = jnp.exp(d) - d - 1 if method == "low_var_kl" else -d
    return kl if clamp_value is None else jnp.clip(kl, -clamp_value, clamp_value)


@jax.jit
def k3(d):
    return jnp.expm1(d) - d


@functools.partial(jax.jit, static_argnames="kind")
def k3_of_kind(d, kind):
    return jnp.expm1(d) - d if kind == "k3" else -d


def stopped(d):
    return jax.lax.stop_gradient(jnp.expm1(d) - d)
