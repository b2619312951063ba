"""The framework that a function is written for, from the names that its code uses."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from kl_audit.backends import BACKENDS
from kl_audit.callee import Loaded


def homes(loaded: Loaded) -> list[str]:
    """Return the back ends whose framework the code names; every one where it names none.

    NumPy beside another framework is a helper there, and does not count.
    """
    found = {root for root in _roots(loaded.fn) if root in BACKENDS}
    if len(found) > 1:
        found.discard("numpy")
    return [name for name in BACKENDS if name in found] or list(BACKENDS)


def _roots(fn: Any) -> Iterator[str]:
    """Yield the root packages of the modules and functions that a callable's code refers to."""
    inner = inspect.unwrap(fn)
    inner = getattr(inner, "__func__", inner)
    if not isinstance(inner, FunctionType):
        methods = vars(type(inner))
        call = methods.get("forward") or methods.get("__call__")
        inner = inspect.unwrap(call) if isinstance(call, FunctionType) else None
        if inner is None:
            return
    for name in _names(inner.__code__):
        value = inner.__globals__.get(name)
        module = getattr(value, "__name__" if inspect.ismodule(value) else "__module__", None)
        if isinstance(module, str):
            yield module.split(".")[0]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
