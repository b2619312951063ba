"""JAX, op by op and under jit."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from kl_audit.backends.base import (
    Backend,
    CandidateError,
    Evaluate,
    EvaluateArrays,
    Mode,
    Unavailable,
    check_device,
    check_float,
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

    nn = jax.nn

    class JaxOps:
        exp, expm1, log, log1p, sqrt, abs = jnp.exp, jnp.expm1, jnp.log, jnp.log1p, jnp.sqrt, jnp.abs
        minimum, maximum, logaddexp = jnp.minimum, jnp.maximum, jnp.logaddexp
        isnan, isinf, isfinite = jnp.isnan, jnp.isinf, jnp.isfinite
        sigmoid, softplus, log_sigmoid = nn.sigmoid, nn.softplus, nn.log_sigmoid
        where, clip, reshape, stack = jnp.where, jnp.clip, jnp.reshape, jnp.stack
        sum, mean, max, min = jnp.sum, jnp.mean, jnp.max, jnp.min
        xlogy = jax.scipy.special.xlogy

        @staticmethod
        def cumsum(x: Any, axis: int = -1) -> Any:
            return jnp.cumsum(x, axis)

        @staticmethod
        def logsumexp(x: Any, axis: int = -1) -> Any:
            return nn.logsumexp(x, axis)

        @staticmethod
        def log_softmax(x: Any, axis: int = -1) -> Any:
            return nn.log_softmax(x, axis)

        @staticmethod
        def softmax(x: Any, axis: int = -1) -> Any:
            return nn.softmax(x, axis)

        @staticmethod
        def take(x: Any, index: Any, axis: int = -1) -> Any:
            return jnp.take(x, index if isinstance(index, int) else jnp.asarray(index), axis)

        @staticmethod
        def full(shape: tuple[int, ...], value: float, ref: Any) -> Any:
            return jnp.full(shape, value, ref.dtype)

        @staticmethod
        def concat(arrays: list[Any]) -> Any:
            return jnp.concatenate(arrays, -1)

        @staticmethod
        def integer(index: Any, ref: Any) -> Any:
            return jnp.asarray(np.asarray(index), dtype=jnp.int32)

        @staticmethod
        def as_bool(x: Any) -> Any:
            return x != 0

        @staticmethod
        def is_array(x: Any) -> bool:
            return isinstance(x, jax.Array)

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


def _wide(jax: Any, wanted: bool) -> Any:
    """Return a context in which float64 exists; everything else runs under JAX's own default."""
    if not wanted:
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

    def arrays(
        self, columns: tuple[FloatArray, ...], device: str = "cpu", track: bool = False
    ) -> tuple[Any, list[Any]]:
        """See ``Backend.arrays``; JAX differentiates functions, so nothing is tracked."""
        jax = _jax()
        with _wide(jax, any(c.dtype == np.float64 for c in columns)):
            return _ops(jax), [jax.numpy.asarray(np.ascontiguousarray(c)) for c in columns]

    def array_evaluator(
        self, fn: Candidate, mode: str, device: str, wrt: tuple[int, ...] = ()
    ) -> EvaluateArrays:
        """See ``Backend.array_evaluator``."""
        jax, target = self._prepare(mode, device)
        ops = _ops(jax)

        def value(*inputs: Any) -> Any:
            result = fn(ops, *inputs)
            check_float(result, jax.Array)
            return result

        def both(*inputs: Any) -> Any:
            if not wrt:
                return value(*inputs), []
            return _value_and_gradients(jax, value, inputs, wrt)

        run = jax.jit(both) if mode == "jit" else both

        def evaluate(*inputs: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
            wide = any(x.dtype == np.float64 for x in inputs)
            result, gradients = _run(jax, run, inputs, target, wide)
            return np.asarray(result), [np.asarray(g) for g in gradients]

        return evaluate

    def evaluator(
        self, fn: Candidate, mode: str, device: str, fmt: Format, output: str = "value",
        wrt: int = 0, result: Format | None = None,
    ) -> Evaluate:  # fmt: skip
        """See ``Backend.evaluator``."""
        jax, target = self._prepare(mode, device)
        ops = _ops(jax)
        dtype = (result or fmt).dtype

        def checked(*inputs: Any) -> Any:
            got = fn(ops, *inputs)
            check_result(got, jax.Array, dtype, tuple(inputs[0].shape))
            return got

        def differentiated(*inputs: Any) -> Any:
            return _value_and_gradients(jax, checked, inputs, (wrt,))[1][0]

        run = differentiated if output == "gradient" else checked
        if mode == "jit":
            run = jax.jit(run)
        wide = "float64" in (fmt.name, (result or fmt).name)

        def evaluate(*inputs: FloatArray) -> FloatArray:
            out: FloatArray = np.asarray(_run(jax, run, inputs, target, wide))
            return out

        return evaluate

    def _prepare(self, mode: str, device: str) -> tuple[Any, Any]:
        """Return jax and the device object; raises Unavailable."""
        check_mode(self, mode)
        check_device(self, device)
        jax = _jax()
        if mode == "jit" and jax.config.jax_disable_jit:
            raise Unavailable("jax.jit is switched off here (JAX_DISABLE_JIT is set)")
        return jax, jax.devices("gpu" if device == "cuda" else device)[0]


def _value_and_gradients(
    jax: Any, fn: Candidate, inputs: tuple[Any, ...], wrt: tuple[int, ...]
) -> tuple[Any, list[Any]]:
    """Differentiate the sum of the result, which elementwise is the derivative of each element."""

    def partial(*chosen: Any) -> Any:
        full = list(inputs)
        for i, x in zip(wrt, chosen, strict=True):
            full[i] = x
        return fn(*full)

    value, pullback = jax.vjp(partial, *(inputs[i] for i in wrt))
    return value, list(pullback(jax.numpy.ones_like(value)))


def _run(jax: Any, run: Candidate, inputs: tuple[FloatArray, ...], target: Any, wide: bool) -> Any:
    """Put the inputs on the device and run; what the candidate raises becomes CandidateError."""
    with _wide(jax, wide):
        arrays = [jax.device_put(np.ascontiguousarray(x), target) for x in inputs]
        try:
            return jax.block_until_ready(run(*arrays))
        except Exception as error:
            told = error.__cause__ if isinstance(error, CandidateError) else error
            # It branches on values where there is only a tracer.
            if isinstance(told, jax.errors.ConcretizationTypeError):
                raise Unavailable(f"JAX cannot trace it: {describe_error(told)}") from error
            if isinstance(error, CandidateError):
                raise
            raise CandidateError(f"raised {describe_error(error)}") from error


BACKEND = JaxBackend()
