"""What a function returned, and which part of it is the result."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kl_audit.backends.base import CandidateError
from kl_audit.errors import UsageError
from kl_audit.formats import FORMATS

#: How many entries of a tuple or dictionary an error names.
SHOWN = 8


class WrongSizeError(CandidateError):
    """The result has neither one value an element nor one value in all; another shape may do."""


@dataclass(frozen=True)
class Taken:
    """The result, and where it was in what was returned."""

    array: Any
    key: str | None  #: None where the function returns just the result
    is_scalar: bool  #: one value for all elements: a reduction
    result_format: str


def resolve(xp: Any, returned: Any, key: str | None, n: int) -> Taken:
    """Find the result for n elements; without a key, the one float array of n values (or of one).

    Raises UsageError for a key that is not there or that is needed, WrongSizeError, and CandidateError
    for what can be no result.
    """
    if key is None and not _is_array(xp, returned) and (parts := entries(returned)) is not None:
        key = _only(xp, returned, parts, n)
    array = as_array(xp, returned if key is None else take(returned, key))
    size = math.prod(array.shape)
    if size not in (1, n):
        raise WrongSizeError(f"returned {describe(array)} for {n} elements")
    return Taken(array, key, size == 1 and n > 1, check_format(xp, array))


def _only(xp: Any, returned: Any, parts: dict[str, Any], n: int) -> str:
    """Return the key of the only possible result."""
    floats = {k: v for k, v in parts.items() if _is_array(xp, v) and xp.format_of(v) in _names()}
    for size in (n, 1):
        keys = [k for k, v in floats.items() if math.prod(v.shape) == size]
        if len(keys) == 1:
            return keys[0]
        if keys:
            raise UsageError(f"it returned {describe(returned)}: say which with --output {keys[0]}.")
    if floats:
        raise WrongSizeError(f"returned {describe(returned)} for {n} elements")
    raise CandidateError(f"returned {describe(returned)}, in which no float array is")


def take(returned: Any, key: str) -> Any:
    """Return an entry: an index, a dictionary's key, an attribute, or several joined by dots.

    Of an array, an index selects along the first axis.  Raises UsageError if it is not there.
    """
    found, value = _entry(returned, key)
    if found:
        return value
    head, dot, rest = key.partition(".")
    if dot:
        found, value = _entry(returned, head)
        if found:
            return take(value, rest)
    raise UsageError(f"--output '{key}' is not there: it returned {describe(returned)}.")


def _entry(returned: Any, key: str) -> tuple[bool, Any]:
    if isinstance(returned, Mapping):
        return next(((True, v) for k, v in returned.items() if str(k) == key), (False, None))
    if key.removeprefix("-").isdecimal() and hasattr(returned, "__getitem__"):
        size = len(returned)
        return (True, returned[int(key)]) if -size <= int(key) < size else (False, None)
    return (True, getattr(returned, key)) if hasattr(returned, key) else (False, None)


def entries(returned: Any) -> dict[str, Any] | None:
    """Return the named parts of a tuple, list, dictionary or object; None for what has none."""
    if isinstance(returned, Mapping):
        return {str(k): v for k, v in returned.items()}
    if isinstance(returned, tuple | list):
        return {str(i): v for i, v in enumerate(returned)}
    if dataclasses.is_dataclass(returned) and not isinstance(returned, type):
        return {f.name: getattr(returned, f.name) for f in dataclasses.fields(returned)}
    if hasattr(returned, "dtype") or not hasattr(returned, "__dict__"):
        return None
    return dict(vars(returned))


def as_array(xp: Any, value: Any) -> Any:
    """Return the result as an array of the framework; raises CandidateError for anything else."""
    if xp.is_array(value):
        return value
    if isinstance(value, np.generic) and xp.is_array(whole := np.asarray(value)):
        return whole  # NumPy's reductions give scalars, not arrays
    raise CandidateError(f"returned {describe(value)}, expected an array of the framework it was given")


def _is_array(xp: Any, value: Any) -> bool:
    return bool(xp.is_array(value)) or (isinstance(value, np.generic) and xp.is_array(np.asarray(value)))


def check_format(xp: Any, array: Any) -> str:
    """Return the name of the format of an array; raises CandidateError for any other dtype."""
    name = str(xp.format_of(array))
    if name not in _names():
        raise CandidateError(f"returned dtype {name}, expected float64, float32, float16 or bfloat16")
    return name


def _names() -> set[str]:
    return {f.name for f in FORMATS.values()}


def describe(value: Any) -> str:
    """Return what a value is, in a phrase: ``tuple (0: float32 (64,), 1: dict)``."""
    if (hasattr(value, "dtype") and hasattr(value, "shape")) or value is None:
        return _brief(value)
    if (parts := entries(value)) is not None:
        shown = [f"{k}: {_brief(v)}" for k, v in list(parts.items())[:SHOWN]]
        shown += ["..."] if len(parts) > SHOWN else []
        return f"{type(value).__name__} ({', '.join(shown)})"
    return f"Python {type(value).__name__}"


def _brief(value: Any) -> str:
    if value is None:
        return "None"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        home = type(value).__module__.split(".")[0].removesuffix("lib")
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{home} {dtype} {tuple(value.shape)}"
    return type(value).__name__
