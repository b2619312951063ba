"""The interface of a back end, and the names that an expression may use.

A candidate is written once, ``fn(xp, *inputs)``.  ``xp`` gives every back end the same names for the
framework's *own* functions, because those are what is audited: a compatibility layer that rewrites
clip or where would be audited in their place.

=====================  =========================================================================
``xp.exp expm1 log``   elementwise, in the dtype of the argument; also ``log1p sqrt abs sigmoid
                       softplus log_sigmoid isnan isinf isfinite``
``xp.where clip``      ``where(condition, a, b)``; ``clip(x, low, high)``, numbers or None
``xp.minimum``         of two arrays, elementwise; also ``maximum logaddexp xlogy``
``xp.sum(x, axis)``    a reduction, over all axes by default; also ``mean max min``
``xp.logsumexp``       over the last axis by default; ``softmax log_softmax cumsum`` keep it
``xp.take(x, i)``      entries of the last axis: an integer drops the axis, a list keeps it
``xp.cast(x, name)``   convert to the format called ``name`` (``float32``)
``xp.like(x, ref)``    convert x to the dtype of ref
``xp.constant(c, x)``  a number that is not an integer, for arithmetic in the dtype of x
``xp.full(s, c, x)``   an array of shape s filled with c, dtype and device of x
``xp.reshape(x, s)``   the same values in another shape
``xp.concat(list)``    arrays joined along the last axis; ``stack(list)`` along a new first one
``xp.integer(i, x)``   an index array where x is; ``as_bool(x)`` is x != 0
``xp.is_array(x)``     whether x is an array of this framework
``xp.format_of(x)``    the name of the format of an array (``bfloat16``), known when tracing
``xp.stop_gradient``   the value, without its derivative
=====================  =========================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kl_audit.formats import FORMATS, FloatArray, Format
from kl_audit.quantities.base import Candidate

#: Takes and returns arrays of a format's NumPy dtype, all of one length.
Evaluate = Callable[..., FloatArray]

#: Takes arrays of any shapes, returns the value and the gradients that were asked for.
EvaluateArrays = Callable[..., tuple[FloatArray, list[FloatArray]]]


class Unavailable(Exception):  # noqa: N818 - an answer, not an error: it becomes a skipped row
    """This back end, mode, device or dtype cannot be had here; the message is the reason."""


class CandidateError(Exception):
    """The candidate raised, or returned something of the wrong kind; the message says what."""


@dataclass(frozen=True)
class Mode:
    """One way in which a back end executes an expression."""

    name: str
    summary: str
    compiles: bool = False  #: code is compiled for each shape: calls should share few shapes


class Backend(ABC):
    """What the engine asks of a back end."""

    name: ClassVar[str]
    rank: ClassVar[int]  #: place in tables
    modes: ClassVar[tuple[Mode, ...]]
    differentiates: ClassVar[bool]

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return package versions; raises Unavailable where the framework cannot be imported."""

    @abstractmethod
    def devices(self) -> list[str]:
        """Return the devices present, ``cpu`` first; raises Unavailable."""

    @abstractmethod
    def evaluator(
        self, fn: Candidate, mode: str, device: str, fmt: Format, output: str = "value",
        wrt: int = 0, result: Format | None = None,
    ) -> Evaluate:  # fmt: skip
        """Return a function that evaluates (or differentiates) ``fn`` on arrays of ``fmt``.

        ``output`` is ``value`` or ``gradient``, the latter with respect to input number ``wrt``, by
        the framework's own automatic differentiation.  ``result`` is the format that ``fn`` returns,
        where it is not ``fmt``.  Raises Unavailable.
        """

    @abstractmethod
    def array_evaluator(
        self, fn: Candidate, mode: str, device: str, wrt: tuple[int, ...] = ()
    ) -> EvaluateArrays:
        """Return a function of arrays of any shapes: ``(value, gradients)``.

        The gradients are of the sum of the result, with respect to the inputs numbered ``wrt``.
        Inputs that are not floats (indices, masks) are passed as they are.  Raises Unavailable.
        """

    @abstractmethod
    def arrays(
        self, columns: tuple[FloatArray, ...], device: str = "cpu", track: bool = False
    ) -> tuple[Any, list[Any]]:
        """Return ``(xp, arrays)``: the operations, and the columns as the framework's own arrays.

        ``track`` asks for arrays whose derivatives are recorded.  Raises Unavailable.
        """


def describe_error(error: BaseException) -> str:
    """Return an exception as one line."""
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def import_failure(package: str, extra: str, error: BaseException) -> Unavailable:
    """Tell a framework that is not there from one that is broken."""
    if isinstance(error, ModuleNotFoundError) and error.name == package:
        return Unavailable(f"{package} is not installed (pip install 'kl-audit[{extra}]')")
    return Unavailable(f"{package} is installed but cannot be imported: {describe_error(error)}")


def check_mode(backend: Backend, mode: str) -> None:
    """Raise Unavailable for a mode that the back end lacks."""
    names = [m.name for m in backend.modes]
    if mode not in names:
        raise Unavailable(f"{backend.name} has no mode '{mode}' (it has {', '.join(names)})")


def check_device(backend: Backend, device: str) -> None:
    """Raise Unavailable for a device that is not present."""
    present = backend.devices()
    if device not in present:
        raise Unavailable(f"no {device} device here ({backend.name} sees {', '.join(present)})")


def check_float(result: Any, kind: type) -> str:
    """Return the name of the format of a result; raises CandidateError for what is no float array."""
    if not isinstance(result, kind):
        raise CandidateError(f"returned {type(result).__name__}, expected an array")
    got: Any = result
    name = str(got.dtype).removeprefix("torch.")
    if name not in {f.name for f in FORMATS.values()}:
        raise CandidateError(f"returned dtype {name}, expected float64, float32, float16 or bfloat16")
    return name


def check_result(result: Any, kind: type, dtype: Any, shape: tuple[int, ...]) -> None:
    """Raise CandidateError unless a result is an array of the framework, dtype and shape given."""
    if not isinstance(result, kind):
        raise CandidateError(f"returned {type(result).__name__}, expected an array")
    got: Any = result
    if tuple(got.shape) != shape:
        raise CandidateError(f"returned shape {tuple(got.shape)}, expected {shape}")
    if got.dtype != dtype:
        raise CandidateError(f"returned dtype {got.dtype}, expected {dtype}")
