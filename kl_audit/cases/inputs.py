"""The inputs of a part: numbers as a dtype stores them, indices, masks, or numbers that are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kl_audit.audit.at import Given, parse_at
from kl_audit.cases.model import Input, Made, Number
from kl_audit.errors import UsageError
from kl_audit.formats import Float64Array

#: Types that are not rounded to a format.
EXACT = ("int", "bool")


def given(inputs: Mapping[str, Input]) -> Given:
    """Return the inputs, in order; raises UsageError."""
    found = Given({}, {}, {})
    for name, value in inputs.items():
        if isinstance(value, Made) and isinstance(value.values, list) and _is_listed(value):
            found.other[name] = _exact(name, value)
            continue
        if isinstance(value, list) and not value:
            found.real[name] = ()
            continue
        made = value if isinstance(value, Made) else Made.model_validate({"values": _listed(value)})
        item = f"{name}{_suffix(made)}={_text(name, made, found)}"
        try:
            one = parse_at((item,))
        except UsageError as error:
            raise UsageError(f"input {str(error).removeprefix('--at ')}") from None
        found.real.update(one.real)
        found.other.update(one.other)
        found.dtypes.update(one.dtypes)
    return found


def _is_listed(made: Made) -> bool:
    """Whether an input is a list of indices or marks: one of it is a list too, and there may be none."""
    return made.dtype in EXACT


def _exact(name: str, made: Made) -> npt.NDArray[Any]:
    kind: Any = np.int64 if made.dtype == "int" else np.bool_
    try:
        return np.array([int(x) for x in made.values or []], dtype=kind)
    except ValueError:
        raise UsageError(f"input '{name}': expected a list of {made.dtype} values.") from None


def _listed(value: Number | list[Number]) -> str | list[Number]:
    return value if isinstance(value, str | list) else [value]


def _suffix(made: Made) -> str:
    return f":{made.dtype}" if made.dtype else ""


def _text(name: str, made: Made, found: Given) -> str:
    """Return the values as ``--at`` takes them."""
    ways = {"values": made.values, "normal": made.normal, "logspace": made.logspace}
    chosen = [way for way, x in ways.items() if x is not None]
    if len(chosen) != 1:
        raise UsageError(f"input '{name}': expected exactly one of values, normal, logspace.")
    if made.values is not None:
        if made.count is not None or made.near is not None:
            raise UsageError(f"input '{name}': count and near are for inputs that are made, not for values.")
        return made.values if isinstance(made.values, str) else ",".join(str(x) for x in made.values)
    if made.dtype in EXACT:
        raise UsageError(f"input '{name}': {made.dtype} inputs are given by values.")
    return ",".join(repr(float(x)) for x in _made(name, made, found))


def _made(name: str, made: Made, found: Given) -> Float64Array:
    near = None
    if made.near is not None:
        if made.near not in found.real:
            raise UsageError(f"input '{name}': near = '{made.near}' is no input before it.")
        near = np.array(found.real[made.near])
    count = made.count if made.count is not None else None if near is None else len(near)
    if count is None:
        raise UsageError(f"input '{name}': how many? Expected count.")
    if made.normal is not None:
        mean, std = made.normal
        x: Float64Array = np.random.default_rng(made.seed).normal(mean, std, count)
    else:
        low, high = made.logspace or (1.0, 1.0)
        if not 0 < low < high:
            raise UsageError(f"input '{name}': logspace takes two magnitudes, 0 < low < high.")
        x = np.geomspace(low, high, count)
        if made.signs == "both":
            x = np.concatenate([-x[::-1], x])
    if near is None:
        return x
    if len(near) != len(x):
        raise UsageError(f"input '{name}': {len(x)} draws, but '{made.near}' has {len(near)} values.")
    shifted: Float64Array = near + x
    return shifted
