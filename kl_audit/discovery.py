"""Plug-ins by file: a new formulation, back end or report format is one new module in its room."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any


def collect(package: ModuleType, attribute: str) -> list[Any]:
    """Return ``attribute`` of every module of a package that defines it, by module name.

    A module may hold one object or a tuple of them.
    """
    found: list[Any] = []
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        value = getattr(module, attribute, ())
        found.extend(value if isinstance(value, tuple) else (value,))
    return found
