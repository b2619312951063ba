"""The interface of a back end, and the names that an expression may use.

A candidate is written once, ``fn(xp, *inputs)``.  ``xp`` gives every back end the same names for the
framework's *own* functions, because those are what is audited: a compatibility layer that rewrites
clip or where would be audited in their place.

=====================  =========================================================================
``xp.exp expm1 log``   elementwise, in the dtype of the argument
``xp.where clip abs``  ``where(condition, a, b)`` of arrays; ``clip(x, low, high)`` of numbers
``xp.cast(x, name)``   convert to the format called ``name`` (``float32``)
``xp.like(x, ref)``    convert x to the dtype of ref
``xp.constant(c, x)``  a number that is not an integer, for arithmetic in the dtype of x
``xp.format_of(x)``    the name of the format of an array (``bfloat16``), known when tracing
``xp.stop_gradient``   the value, without its derivative
=====================  =========================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kl_audit.formats import FloatArray, Format
from kl_audit.quantities.base import Candidate

#: Takes and returns arrays of a format's NumPy dtype, all of one length.
Evaluate = Callable[..., FloatArray]


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
        self, fn: Candidate, mode: str, device: str, fmt: Format, output: str = "value"
    ) -> Evaluate:
        """Return a function that evaluates (or differentiates) ``fn`` on arrays of ``fmt``.

        ``output`` is ``value`` or ``gradient``, the latter with respect to the first input, by the
        framework's own automatic differentiation.  Raises Unavailable.
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


def check_result(result: Any, kind: type, dtype: Any, shape: tuple[int, ...]) -> None:
    """Raise CandidateError unless a result is an array of the framework, dtype and shape given."""
    if not isinstance(result, kind):
        raise CandidateError(f"returned {type(result).__name__}, expected an array")
    got: Any = result
    if tuple(got.shape) != shape:
        raise CandidateError(f"returned shape {tuple(got.shape)}, expected {shape}")
    if got.dtype != dtype:
        raise CandidateError(f"returned dtype {got.dtype}, expected {dtype}")
