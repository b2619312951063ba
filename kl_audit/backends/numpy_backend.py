"""NumPy, with ml_dtypes for bfloat16: each operation rounds to the dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
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
)
from kl_audit.formats import FloatArray, Format, find_format
from kl_audit.quantities.base import Candidate


class NumpyOps:
    """The names of ``backends.base``, from NumPy."""

    exp, expm1, log = np.exp, np.expm1, np.log
    abs = np.abs

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        """Select elementwise."""
        return np.where(condition, a, b)

    @staticmethod
    def clip(x: Any, low: float, high: float) -> Any:
        """Limit x; np.clip turns bfloat16 into float32, these do not."""
        return np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high))

    @staticmethod
    def constant(value: float, ref: Any) -> Any:
        """Return a number in the dtype of ref; a Python float turns bfloat16 into float32."""
        return ref.dtype.type(value)

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

    def evaluator(
        self, fn: Candidate, mode: str, device: str, fmt: Format, output: str = "value"
    ) -> Evaluate:
        """See ``Backend.evaluator``."""
        check_mode(self, mode)
        check_device(self, device)
        if output == "gradient":
            raise Unavailable("numpy has no automatic differentiation")

        def evaluate(*inputs: FloatArray) -> FloatArray:
            with np.errstate(all="ignore"):
                try:
                    result = fn(NumpyOps, *inputs)
                except Exception as error:
                    raise CandidateError(f"raised {describe_error(error)}") from error
            check_result(result, np.ndarray, fmt.dtype, inputs[0].shape)
            out: FloatArray = result
            return out

        return evaluate


BACKEND = NumpyBackend()
