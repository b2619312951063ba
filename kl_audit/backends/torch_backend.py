"""torch, eager and compiled, on the CPU and on what accelerators it sees."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from types import FunctionType
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
from kl_audit.formats import FloatArray, Format, find_format
from kl_audit.quantities.base import Candidate


def _torch() -> Any:
    try:
        import torch

        if not callable(torch.from_numpy):
            raise ImportError("torch.from_numpy is not there")
    except (Exception, SystemExit) as error:
        raise import_failure("torch", "torch", error) from error
    return torch


def _ops(torch: Any) -> Any:
    """Return the names of ``backends.base``, from torch."""

    def axes(x: Any, axis: int | None) -> Any:
        return tuple(range(x.ndim)) if axis is None else axis

    functional = torch.nn.functional

    class TorchOps:
        exp, expm1, log, log1p, sqrt, abs = (
            torch.exp, torch.expm1, torch.log, torch.log1p, torch.sqrt, torch.abs,
        )  # fmt: skip
        minimum, maximum, logaddexp, xlogy = torch.minimum, torch.maximum, torch.logaddexp, torch.xlogy
        isnan, isinf, isfinite = torch.isnan, torch.isinf, torch.isfinite
        sigmoid, softplus, log_sigmoid = torch.sigmoid, functional.softplus, functional.logsigmoid
        where, clip = torch.where, torch.clamp
        stack = torch.stack

        @staticmethod
        def sum(x: Any, axis: int | None = None) -> Any:
            return x.sum() if axis is None else x.sum(axis)

        @staticmethod
        def mean(x: Any, axis: int | None = None) -> Any:
            return x.mean() if axis is None else x.mean(axis)

        @staticmethod
        def max(x: Any, axis: int | None = None) -> Any:
            return torch.amax(x, axes(x, axis))

        @staticmethod
        def min(x: Any, axis: int | None = None) -> Any:
            return torch.amin(x, axes(x, axis))

        @staticmethod
        def cumsum(x: Any, axis: int = -1) -> Any:
            return torch.cumsum(x, axis)

        @staticmethod
        def logsumexp(x: Any, axis: int = -1) -> Any:
            return torch.logsumexp(x, axis)

        @staticmethod
        def log_softmax(x: Any, axis: int = -1) -> Any:
            return torch.log_softmax(x, axis)

        @staticmethod
        def softmax(x: Any, axis: int = -1) -> Any:
            return torch.softmax(x, axis)

        @staticmethod
        def take(x: Any, index: Any, axis: int = -1) -> Any:
            if isinstance(index, int):
                return x.select(axis, index % x.shape[axis])
            index = torch.as_tensor(index, device=x.device)
            if index.ndim == 0:
                return torch.index_select(x, axis, index.reshape(1)).squeeze(axis)
            return torch.index_select(x, axis, index)

        @staticmethod
        def cast(x: Any, name: str) -> Any:
            return x.to(getattr(torch, name))

        @staticmethod
        def constant(value: float, ref: Any) -> Any:
            return value  # a Python number takes the dtype of the array

        @staticmethod
        def full(shape: tuple[int, ...], value: float, ref: Any) -> Any:
            return torch.full(shape, value, dtype=ref.dtype, device=ref.device)

        @staticmethod
        def reshape(x: Any, shape: tuple[int, ...]) -> Any:
            return torch.reshape(x, shape)

        @staticmethod
        def concat(arrays: list[Any]) -> Any:
            return torch.cat(arrays, -1)

        @staticmethod
        def integer(index: Any, ref: Any) -> Any:
            return torch.as_tensor(np.asarray(index, dtype=np.int64), device=ref.device)

        @staticmethod
        def as_bool(x: Any) -> Any:
            return x != 0

        @staticmethod
        def is_array(x: Any) -> bool:
            return isinstance(x, torch.Tensor)

        @staticmethod
        def like(x: Any, ref: Any) -> Any:
            return x.to(ref.dtype)

        @staticmethod
        def format_of(x: Any) -> str:
            return str(x.dtype).removeprefix("torch.")

        @staticmethod
        def stop_gradient(x: Any) -> Any:
            return x.detach()

    return TorchOps


#: Environment variables that turn torch.compile into a no-op, which would pass eager off as compiled.
_COMPILE_OFF = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")


_SERIAL = itertools.count()


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")


class TorchBackend(Backend):
    """torch: eager kernels, and torch.compile (Inductor)."""

    name = "torch"
    rank = 1
    modes = (
        Mode("eager", "one kernel per operation"),
        Mode("compile", "torch.compile, Inductor, full graph, dynamic shapes", True),
    )
    differentiates = True

    def versions(self) -> dict[str, str]:
        """Return the version of torch."""
        return {"torch": str(_torch().__version__)}

    def devices(self) -> list[str]:
        """Return cpu, and cuda, xpu and mps where torch sees them."""
        torch = _torch()
        present = ["cpu"]
        if torch.cuda.is_available():
            present.append("cuda")
        if hasattr(torch, "xpu") and torch.xpu.is_available():
            present.append("xpu")
        if torch.backends.mps.is_available():
            present.append("mps")
        return present

    def arrays(
        self, columns: tuple[FloatArray, ...], device: str = "cpu", track: bool = False
    ) -> tuple[Any, list[Any]]:
        """See ``Backend.arrays``."""
        torch = _torch()
        tensors = [_tensor(torch, c, device) for c in columns]
        for t in tensors:
            if track and t.is_floating_point():
                t.requires_grad_(True)
        return _ops(torch), tensors

    def array_evaluator(
        self, fn: Candidate, mode: str, device: str, wrt: tuple[int, ...] = ()
    ) -> EvaluateArrays:
        """See ``Backend.array_evaluator``."""
        torch = _torch()
        run = self._runner(torch, fn, mode, device)

        def evaluate(*inputs: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
            tensors = [_tensor(torch, x, device) for x in inputs]
            leaves = [tensors[i].requires_grad_(True) for i in wrt]
            with torch.set_grad_enabled(bool(wrt)):
                result = run(*tensors)
                check_float(result, torch.Tensor)
            gradients = _gradients(torch, result, leaves) if wrt else []
            return _numpy(torch, result), [_numpy(torch, g) for g in gradients]

        return evaluate

    def evaluator(
        self, fn: Candidate, mode: str, device: str, fmt: Format, output: str = "value",
        wrt: int = 0, result: Format | None = None,
    ) -> Evaluate:  # fmt: skip
        """See ``Backend.evaluator``."""
        torch = _torch()
        dtype = getattr(torch, (result or fmt).name)
        run = self._runner(torch, fn, mode, device)

        def evaluate(*inputs: FloatArray) -> FloatArray:
            tensors = [_tensor(torch, x, device) for x in inputs]
            gradient = output == "gradient"
            if gradient:
                tensors[wrt].requires_grad_(True)
            with torch.set_grad_enabled(gradient):
                got = run(*tensors)
            check_result(got, torch.Tensor, dtype, tuple(inputs[0].shape))
            if gradient:
                (got,) = _gradients(torch, got, [tensors[wrt]])
            return _numpy(torch, got)

        return evaluate

    def _runner(self, torch: Any, fn: Candidate, mode: str, device: str) -> Candidate:
        """Return the candidate as it runs in a mode; what it raises becomes CandidateError."""
        check_mode(self, mode)
        check_device(self, device)
        ops = _ops(torch)

        def expression(*inputs: Any) -> Any:
            return fn(ops, *inputs)

        run: Candidate = expression
        if mode == "compile":
            run = _compiled(torch, expression, device)  # type: ignore[arg-type]

        def call(*inputs: Any) -> Any:
            try:
                return run(*inputs)
            except (CandidateError, Unavailable):
                raise
            except Exception as error:
                if mode == "compile" and isinstance(error, torch._dynamo.exc.TorchDynamoException):
                    if isinstance(error.__cause__, CandidateError):
                        raise error.__cause__ from error
                    told = describe_error(error)
                    raise Unavailable(f"torch.compile cannot take it as one graph: {told}") from error
                raise CandidateError(f"raised {describe_error(error)}") from error

        return call


def _tensor(torch: Any, x: FloatArray, device: str) -> Any:
    """Copy a NumPy array to a tensor; NumPy and torch have no bfloat16 in common but its bits."""
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16).to(device)
    return torch.from_numpy(x.copy()).to(device)


def _numpy(torch: Any, x: Any) -> FloatArray:
    """Copy a tensor to a NumPy array."""
    x = x.detach().cpu().contiguous()
    if x.dtype is torch.bfloat16:
        pattern: FloatArray = x.view(torch.int16).numpy()
        return pattern.view(find_format("bfloat16").dtype)
    out: FloatArray = x.numpy()
    return out


def _gradients(torch: Any, result: Any, leaves: list[Any]) -> list[Any]:
    """Differentiate the sum of the result, which elementwise is the derivative of each element."""
    if not result.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    try:
        found = torch.autograd.grad(result, leaves, torch.ones_like(result), allow_unused=True)
    except Exception as error:
        raise CandidateError(f"cannot be differentiated: {describe_error(error)}") from error
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]


def _compiled(torch: Any, expression: FunctionType, device: str) -> Candidate:
    """Compile, or raise Unavailable; a silent fall-back to eager raises Unavailable when called."""
    off = next((v for v in _COMPILE_OFF if os.environ.get(v, "0") not in ("", "0")), None)
    if off:
        raise Unavailable(f"torch.compile is switched off here ({off} is set)")
    if device == "cpu" and _compiler() is None:
        raise Unavailable("no C++ compiler found (g++ or clang++ on PATH)")
    # A CUDA build on a machine without one says so on stderr at every compilation.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    # Dynamo keeps its cache, and its limit of recompilations, per code object: give each its own.
    code = expression.__code__
    expression.__code__ = code.replace(co_name=f"{code.co_name}_{next(_SERIAL)}")
    compiled = torch.compile(expression, fullgraph=True, dynamic=True)
    counters = torch._dynamo.utils.counters
    before = counters["stats"]["unique_graphs"]
    confirmed = False

    def run(*inputs: Any) -> Any:
        nonlocal confirmed
        result = compiled(*inputs)
        if not confirmed:
            if counters["stats"]["unique_graphs"] == before:
                raise Unavailable("torch.compile compiled nothing and ran eagerly")
            confirmed = True
        return result

    return run


BACKEND = TorchBackend()
