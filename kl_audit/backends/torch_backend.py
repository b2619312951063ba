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

    class TorchOps:
        exp, expm1, log = torch.exp, torch.expm1, torch.log
        where, clip, abs = torch.where, torch.clamp, torch.abs

        @staticmethod
        def cast(x: Any, name: str) -> Any:
            return x.to(getattr(torch, name))

        @staticmethod
        def constant(value: float, ref: Any) -> Any:
            return value  # a Python number takes the dtype of the array

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

    def evaluator(
        self, fn: Candidate, mode: str, device: str, fmt: Format, output: str = "value"
    ) -> Evaluate:
        """See ``Backend.evaluator``."""
        check_mode(self, mode)
        check_device(self, device)
        torch = _torch()
        ops = _ops(torch)
        dtype = getattr(torch, fmt.name)
        carrier = np.dtype(f"int{fmt.bits}")  # NumPy and torch have no bfloat16 in common
        carried = getattr(torch, carrier.name)

        def expression(*inputs: Any) -> Any:
            return fn(ops, *inputs)

        run: Candidate = expression
        if mode == "compile":
            run = _compiled(torch, expression, device)  # type: ignore[arg-type]

        def call(*inputs: Any) -> Any:
            try:
                result = run(*inputs)
            except (CandidateError, Unavailable):
                raise
            except Exception as error:
                raise CandidateError(f"raised {describe_error(error)}") from error
            check_result(result, torch.Tensor, dtype, tuple(inputs[0].shape))
            return result

        def evaluate(*inputs: FloatArray) -> FloatArray:
            tensors = [torch.from_numpy(x.view(carrier).copy()).view(dtype).to(device) for x in inputs]
            if output == "gradient":
                tensors[0].requires_grad_(True)
                result = call(*tensors)
                result = _gradient(torch, result, tensors[0])
            else:
                with torch.no_grad():
                    result = call(*tensors)
            pattern = result.detach().cpu().contiguous().view(carried).numpy()
            out: FloatArray = pattern.view(fmt.dtype)
            return out

        return evaluate


def _gradient(torch: Any, result: Any, leaf: Any) -> Any:
    """Differentiate elementwise: the sum has the derivative of each element."""
    if not result.requires_grad:
        return torch.zeros_like(leaf)
    (gradient,) = torch.autograd.grad(result, leaf, torch.ones_like(result), allow_unused=True)
    return torch.zeros_like(leaf) if gradient is None else gradient


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
