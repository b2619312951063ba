"""JAX, op by op and under jit."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from kl_audit.backends.base import (
    Backend,
    CandidateError,
    Evaluate,
    Mode,
    Unavailable,
    check_device,
    check_mode,
    check_result,
    describe_error,
    import_failure,
)
from kl_audit.formats import FloatArray, Format
from kl_audit.quantities.base import Candidate


def _jax() -> Any:
    try:
        import jax

        if not callable(jax.jit):
            raise ImportError("jax.jit is not there")
    except (Exception, SystemExit) as error:
        raise import_failure("jax", "jax", error) from error
    return jax


def _ops(jax: Any) -> Any:
    """Return the names of ``backends.base``, from jax.numpy."""
    jnp = jax.numpy

    class JaxOps:
        exp, expm1, log = jnp.exp, jnp.expm1, jnp.log
        where, clip, abs = jnp.where, jnp.clip, jnp.abs

        @staticmethod
        def cast(x: Any, name: str) -> Any:
            return x.astype(name)

        @staticmethod
        def constant(value: float, ref: Any) -> Any:
            return value  # a Python number takes the dtype of the array

        @staticmethod
        def like(x: Any, ref: Any) -> Any:
            return x.astype(ref.dtype)

        @staticmethod
        def format_of(x: Any) -> str:
            return str(x.dtype.name)

        @staticmethod
        def stop_gradient(x: Any) -> Any:
            return jax.lax.stop_gradient(x)

    return JaxOps


def _wide(jax: Any, fmt: Format) -> Any:
    """Return a context in which float64 exists; everything else runs under JAX's own default."""
    if fmt.name != "float64":
        return contextlib.nullcontext()
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


class JaxBackend(Backend):
    """JAX on XLA: every operation compiled alone, or the whole expression under jit."""

    name = "jax"
    rank = 2
    modes = (
        Mode("eager", "op by op: each primitive compiled alone", True),
        Mode("jit", "jax.jit: the expression compiled as a whole", True),
    )
    differentiates = True

    def versions(self) -> dict[str, str]:
        """Return the versions of jax and jaxlib."""
        jax = _jax()
        from importlib.metadata import version

        return {"jax": str(jax.__version__), "jaxlib": version("jaxlib")}

    def devices(self) -> list[str]:
        """Return cpu, then what else JAX sees (cuda, rocm, tpu)."""
        jax = _jax()
        try:
            seen = [str(d.platform) for d in jax.devices()]
        except RuntimeError as error:
            raise Unavailable(f"jax finds no device: {describe_error(error)}") from error
        names = {"gpu": "cuda"}
        return ["cpu", *sorted({names.get(p, p) for p in seen} - {"cpu"})]

    def evaluator(
        self, fn: Candidate, mode: str, device: str, fmt: Format, output: str = "value"
    ) -> Evaluate:
        """See ``Backend.evaluator``."""
        check_mode(self, mode)
        check_device(self, device)
        jax = _jax()
        if mode == "jit" and jax.config.jax_disable_jit:
            raise Unavailable("jax.jit is switched off here (JAX_DISABLE_JIT is set)")
        ops = _ops(jax)
        target = jax.devices("gpu" if device == "cuda" else device)[0]

        def checked(*inputs: Any) -> Any:
            result = fn(ops, *inputs)
            check_result(result, jax.Array, fmt.dtype, tuple(inputs[0].shape))
            return result

        def differentiated(*inputs: Any) -> Any:
            value, pullback = jax.vjp(lambda first: checked(first, *inputs[1:]), inputs[0])
            return pullback(jax.numpy.ones_like(value))[0]

        run = differentiated if output == "gradient" else checked
        if mode == "jit":
            run = jax.jit(run)

        def evaluate(*inputs: FloatArray) -> FloatArray:
            with _wide(jax, fmt):
                arrays = [jax.device_put(np.ascontiguousarray(x), target) for x in inputs]
                try:
                    result = run(*arrays)
                except CandidateError:
                    raise
                except Exception as error:
                    raise CandidateError(f"raised {describe_error(error)}") from error
                out: FloatArray = np.asarray(result)
            return out

        return evaluate


BACKEND = JaxBackend()
