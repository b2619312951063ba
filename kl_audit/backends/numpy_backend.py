"""NumPy, with ml_dtypes for bfloat16: each operation rounds to the dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
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
)
from kl_audit.formats import FloatArray, Format, find_format
from kl_audit.quantities.base import Candidate


class NumpyOps:
    """The names of ``backends.base``, from NumPy."""

    exp, expm1, log, log1p, sqrt, abs = np.exp, np.expm1, np.log, np.log1p, np.sqrt, np.abs
    minimum, maximum, logaddexp = np.minimum, np.maximum, np.logaddexp
    isnan, isinf, isfinite = np.isnan, np.isinf, np.isfinite
    cumsum = staticmethod(lambda x, axis=-1: np.cumsum(x, axis=axis))
    sum = staticmethod(lambda x, axis=None: np.asarray(np.sum(x, axis=axis)))
    mean = staticmethod(lambda x, axis=None: np.asarray(np.mean(x, axis=axis)))
    max = staticmethod(lambda x, axis=None: np.asarray(np.max(x, axis=axis)))
    min = staticmethod(lambda x, axis=None: np.asarray(np.min(x, axis=axis)))

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        """Select elementwise."""
        return np.where(condition, a, b)

    @staticmethod
    def clip(x: Any, low: float | None, high: float | None) -> Any:
        """Limit x; np.clip turns bfloat16 into float32, these do not."""
        above = x if low is None else np.maximum(x, x.dtype.type(low))
        return above if high is None else np.minimum(above, x.dtype.type(high))

    @staticmethod
    def sigmoid(x: Any) -> Any:
        """1 / (1 + e**-x)."""
        return 1 / (1 + np.exp(-x))

    @staticmethod
    def softplus(x: Any) -> Any:
        """log(1 + e**x)."""
        return np.logaddexp(x, x.dtype.type(0))

    @staticmethod
    def log_sigmoid(x: Any) -> Any:
        """-log(1 + e**-x)."""
        return -np.logaddexp(-x, x.dtype.type(0))

    @staticmethod
    def xlogy(a: Any, b: Any) -> Any:
        """a log b, and 0 where a is 0."""
        zero = a == 0
        return np.where(zero, a, a * np.log(np.where(zero, b.dtype.type(1), b)))

    @staticmethod
    def logsumexp(x: Any, axis: int = -1) -> Any:
        """log(sum(e**x)), shifted by the largest entry."""
        top = np.max(x, axis=axis, keepdims=True)
        top = np.where(np.isfinite(top), top, x.dtype.type(0))
        total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
        return np.asarray(np.squeeze(total, axis=axis))

    @staticmethod
    def log_softmax(x: Any, axis: int = -1) -> Any:
        """x - logsumexp(x), shifted by the largest entry first."""
        shifted = x - np.max(x, axis=axis, keepdims=True)
        return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))

    @staticmethod
    def softmax(x: Any, axis: int = -1) -> Any:
        """e**x / sum(e**x), shifted by the largest entry."""
        e = np.exp(x - np.max(x, axis=axis, keepdims=True))
        return e / np.sum(e, axis=axis, keepdims=True)

    @staticmethod
    def take(x: Any, index: Any, axis: int = -1) -> Any:
        """Select entries along an axis."""
        return np.asarray(np.take(x, index, axis=axis))

    @staticmethod
    def constant(value: float, ref: Any) -> Any:
        """Return a number in the dtype of ref; a Python float turns bfloat16 into float32."""
        return ref.dtype.type(value)

    @staticmethod
    def full(shape: tuple[int, ...], value: float, ref: Any) -> Any:
        """Return an array filled with value, in the dtype of ref."""
        return np.full(shape, value, dtype=ref.dtype)

    @staticmethod
    def reshape(x: Any, shape: tuple[int, ...]) -> Any:
        """Return the values in another shape."""
        return np.reshape(x, shape)

    @staticmethod
    def concat(arrays: list[Any]) -> Any:
        """Join along the last axis."""
        return np.concatenate(arrays, axis=-1)

    @staticmethod
    def stack(arrays: list[Any]) -> Any:
        """Join along a new first axis."""
        return np.stack(arrays)

    @staticmethod
    def integer(index: Any, ref: Any) -> Any:
        """Return an index array."""
        return np.asarray(index, dtype=np.int64)

    @staticmethod
    def as_bool(x: Any) -> Any:
        """Return x != 0."""
        return x != 0

    @staticmethod
    def is_array(x: Any) -> bool:
        """Whether x is a NumPy array."""
        return isinstance(x, np.ndarray)

    @staticmethod
    def cast(x: Any, name: str) -> Any:
        """Convert to a format."""
        return x.astype(find_format(name).dtype)

    @staticmethod
    def like(x: Any, ref: Any) -> Any:
        """Convert x to the dtype of ref."""
        return x.astype(ref.dtype)

    @staticmethod
    def format_of(x: Any) -> str:
        """Name the format of x."""
        return str(x.dtype.name)

    @staticmethod
    def stop_gradient(x: Any) -> Any:
        """Return x: there is no gradient to stop."""
        return x


class NumpyBackend(Backend):
    """NumPy on the host, one operation at a time."""

    name = "numpy"
    rank = 0
    modes = (Mode("eager", "one ufunc call per operation"),)
    differentiates = False

    def versions(self) -> dict[str, str]:
        """Return the versions of numpy and ml_dtypes."""
        return {"numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__}

    def devices(self) -> list[str]:
        """NumPy runs on the host."""
        return ["cpu"]

    def arrays(
        self, columns: tuple[FloatArray, ...], device: str = "cpu", track: bool = False
    ) -> tuple[Any, list[Any]]:
        """See ``Backend.arrays``; there is nothing to track."""
        return NumpyOps, [np.array(c) for c in columns]

    def array_evaluator(
        self, fn: Candidate, mode: str, device: str, wrt: tuple[int, ...] = ()
    ) -> EvaluateArrays:
        """See ``Backend.array_evaluator``."""
        check_mode(self, mode)
        check_device(self, device)
        if wrt:
            raise Unavailable("numpy has no automatic differentiation")

        def evaluate(*inputs: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
            result = _call(fn, inputs)
            result = np.asarray(result) if isinstance(result, np.generic) else result
            check_float(result, np.ndarray)
            return result, []

        return evaluate

    def evaluator(
        self, fn: Candidate, mode: str, device: str, fmt: Format, output: str = "value",
        wrt: int = 0, result: Format | None = None,
    ) -> Evaluate:  # fmt: skip
        """See ``Backend.evaluator``."""
        check_mode(self, mode)
        check_device(self, device)
        if output == "gradient":
            raise Unavailable("numpy has no automatic differentiation")

        dtype = (result or fmt).dtype

        def evaluate(*inputs: FloatArray) -> FloatArray:
            got = _call(fn, inputs)
            check_result(got, np.ndarray, dtype, inputs[0].shape)
            out: FloatArray = got
            return out

        return evaluate


def _call(fn: Candidate, inputs: tuple[FloatArray, ...]) -> Any:
    with np.errstate(all="ignore"):
        try:
            return fn(NumpyOps, *inputs)
        except CandidateError:
            raise
        except Exception as error:
            raise CandidateError(f"raised {describe_error(error)}") from error


BACKEND = NumpyBackend()
