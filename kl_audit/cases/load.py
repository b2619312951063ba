"""Case files: read, and refused with the file, the line and what was expected."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kl_audit.cases.checked import problems
from kl_audit.cases.model import Case, Cure, Live, Made, Part
from kl_audit.cases.places import line_of
from kl_audit.errors import UsageError

_MODELS: dict[str, Any] = {"part": Part, "cure": Cure, "live": Live, "inputs": Made}


def read_case(text: str, where: str) -> Case:
    """Return the case that a TOML text describes; raises UsageError, which begins ``where:line:``."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        line = said.rpartition("(at line ")[2].partition(",")[0] if "(at line " in said else "1"
        raise UsageError(f"{where}:{line}: no TOML: {said}.") from None
    try:
        case = Case.model_validate(data)
    except ValidationError as error:
        path, message = _said(error)
        raise UsageError(f"{where}:{line_of(text, path)}: {message}") from None
    for path, message in problems(case):
        raise UsageError(f"{where}:{line_of(text, path)}: {message}")
    return case


def _said(error: ValidationError) -> tuple[tuple[str | int, ...], str]:
    """Return where the first problem is, and what it is, in our words."""
    found = error.errors(include_url=False)
    # of a union each member has its say; what the reader meant is the one that failed deepest
    first = max(found, key=lambda e: (e["type"] == "extra_forbidden", len(e["loc"])))
    path = tuple(x for x in first["loc"] if not isinstance(x, str) or not _is_branch(x))
    key = path[-1] if path else ""
    owner = _owner(path)
    what = _where(path)
    if first["type"] == "extra_forbidden":
        return path, f"{what}unknown key '{key}', expected {', '.join(_keys(owner))}."
    if first["type"] == "missing":
        return path, f"{what}'{key}' is missing: {_described(owner, str(key))}."
    told = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    hint = _described(owner, str(key))
    return path, f"{what}'{key}' is {_short(first['input'])}, expected {told}{f' ({hint})' if hint else ''}."


def _is_branch(name: str) -> bool:
    """Whether a part of a pydantic location names a member of a union and no key."""
    return name in ("int", "float", "str", "Made") or name.startswith(("list[", "dict["))


def _owner(path: Sequence[str | int]) -> Any:
    model: Any = Case
    for key in path[:-1]:
        model = _MODELS.get(str(key), model)
    return model


def _keys(model: Any) -> list[str]:
    return [f.alias or n for n, f in model.model_fields.items()]


def _described(model: Any, key: str) -> str:
    for name, field in model.model_fields.items():
        if key in (name, field.alias):
            return str(field.description or f"a value of '{key}'")
    return ""


def _where(path: Sequence[str | int]) -> str:
    return "".join(f"{a} {b + 1}: " for a, b in pairwise(path)
                   if isinstance(a, str) and isinstance(b, int))  # fmt: skip


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def builtin_folder() -> Path:
    """Return the folder of the cases that come with the tool."""
    packaged = Path(str(resources.files("kl_audit.cases"))) / "builtin"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "cases"


@cache
def builtin() -> tuple[Case, ...]:
    """Return the cases that come with the tool, by id."""
    return read_folder(builtin_folder())


def read_folder(folder: Path) -> tuple[Case, ...]:
    """Return the cases of a folder, by id; raises UsageError for a bad file or an id twice."""
    if not folder.is_dir():
        raise UsageError(f"no folder '{folder}' of cases; expected one with files like my-case.toml.")
    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise UsageError(f"no case files in '{folder}', expected NAME.toml (kl-audit cases new writes one).")
    return without_twins((path, read_file(path)) for path in paths)


def read_file(path: Path) -> Case:
    """Return the case of one file; raises UsageError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"cannot read '{path}': {reason}.") from None
    return read_case(text, str(path))


def without_twins(found: Iterable[tuple[Path, Case]]) -> tuple[Case, ...]:
    """Return the cases by id; raises UsageError where two files have the same."""
    files: dict[str, Path] = {}
    cases = []
    for path, case in found:
        if case.id in files:
            line = line_of(path.read_text(encoding="utf-8"), ("id",))
            raise UsageError(
                f"{path}:{line}: id '{case.id}' is that of {files[case.id]} too; choose another."
            )
        files[case.id] = path
        cases.append(case)
    return tuple(sorted(cases, key=lambda c: c.id))
