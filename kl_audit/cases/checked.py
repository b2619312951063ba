"""What a case says, beyond the types of its keys: names that exist, formulas that parse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kl_audit.backends import BACKENDS
from kl_audit.cases.criterion import OUTCOMES, is_reported, parse_criterion, parse_selector
from kl_audit.cases.inputs import EXACT, given
from kl_audit.cases.model import KINDS, Case, Live, Made, Part, Subject
from kl_audit.cases.subject import inputs_wanted, live_part
from kl_audit.errors import UsageError
from kl_audit.expression import parse
from kl_audit.formats import find_format

Path = tuple[str | int, ...]
Problem = tuple[Path, str]


def problems(case: Case) -> Iterator[Problem]:
    """Yield (path of the key, what is wrong and what was expected)."""
    if case.kind not in KINDS:
        yield ("kind",), f"unknown kind '{case.kind}', expected one of: {'; '.join(KINDS)}."
    names: list[str] = []
    for i, part in enumerate(case.part):
        at = ("part", i)
        if part.name in names:
            yield (*at, "name"), f"two parts are called '{part.name}', expected a name for each."
        names.append(part.name)
        for path, text in _of_part(part):
            yield (*at, *path), f"part '{part.name}': {text}"
    for i, live in enumerate(case.live):
        for path, text in _of_live(live, case):
            yield ("live", i, *path), f"live '{live.package}': {text}"


def _refused(path: Path, act: Callable[[], Any]) -> Iterator[Problem]:
    try:
        act()
    except UsageError as error:
        yield path, str(error)


def _of_part(part: Part) -> Iterator[Problem]:
    yield from _of_subject(part, ())
    for i, cure in enumerate(part.cure):
        yield from _of_subject(cure, ("cure", i))
    if part.truth is not None and part.quantity is not None:
        yield ("truth",), "quantity and truth both say what is right, expected one of them."
    if part.truth is not None:
        yield from _refused(("truth",), lambda: parse(part.truth or ""))
    if part.function is not None and part.truth is None and part.quantity is None:
        yield ("function",), "what is right? A function needs a quantity or a truth beside it."
    if part.formulation is not None and part.quantity is None:
        yield ("formulation",), "a formulation needs the quantity that it computes."
    yield from _refused(("dtype",), lambda: find_format(part.dtype))
    yield from _targets(part)
    yield from _of_inputs(part.inputs, ("inputs",))
    yield from _refused(("inputs",), lambda: inputs_wanted(part))
    if part.wrt is not None and part.wrt not in part.inputs:
        yield ("wrt",), f"'{part.wrt}' is no input, expected one of {', '.join(part.inputs)}."
    yield from _of_result(part)


def _of_result(part: Part) -> Iterator[Problem]:
    yield from _refused(("reproduced_when",), lambda: parse_criterion(part.reproduced_when))
    if part.reproduced_when == "as reported" and part.reported is None:
        yield ("reproduced_when",), "as reported, but nothing is: expected 'reported', or another condition."
    for key, number in (("reported", part.reported), ("right", part.right)):
        if number is not None and not _is_number(str(number)):
            yield (key,), f"'{number}' is no number, expected one: the digits that the report gives."
    if isinstance(part.expected, dict):
        for text in part.expected:
            yield from _refused(("expected",), lambda text=text: parse_selector(text))  # type: ignore[misc]
    outcomes = [part.expected] if isinstance(part.expected, str) else list(part.expected.values())
    for outcome in outcomes:
        if outcome not in OUTCOMES:
            yield ("expected",), f"unknown outcome '{outcome}', expected one of {', '.join(OUTCOMES)}."


def _is_number(text: str) -> bool:
    try:
        is_reported(0.0, text)
    except ValueError:
        return False
    return True


def _of_subject(subject: Subject, at: Path) -> Iterator[Problem]:
    told = [key for key in ("expr", "formulation", "function") if getattr(subject, key) is not None]
    if len(told) != 1:
        have = f"it has {' and '.join(told)}" if told else "it has none"
        yield at, f"{have}, expected exactly one of expr, formulation, function."
    elif subject.expr is not None:
        yield from _refused((*at, "expr"), lambda: parse(subject.expr or ""))
    elif subject.function is not None and subject.function.count(":") != 1:
        yield (*at, "function"), f"'{subject.function}' names no function, expected package.module:function."


def _targets(part: Part) -> Iterator[Problem]:
    for name in part.backends:
        if name not in BACKENDS:
            yield ("backends",), f"unknown back end '{name}', expected {', '.join(BACKENDS)}."
            return
    known = {m.name for name in part.backends for m in BACKENDS[name].modes}
    for name in part.modes:
        if name not in known and name not in ("eager", "jit"):
            yield ("modes",), f"these back ends have no mode '{name}', expected {', '.join(sorted(known))}."


def _of_inputs(inputs: dict[str, Any], at: Path) -> Iterator[Problem]:
    if not inputs:
        yield at, "no inputs, expected at least one: inputs = { d = '1e-6' }."
    for name, value in inputs.items():
        if isinstance(value, Made) and value.dtype not in (None, *EXACT):
            yield from _refused((*at, name), lambda: find_format(value.dtype or ""))  # noqa: B023
    yield from _refused(at, lambda: given(inputs))


def _of_live(live: Live, case: Case) -> Iterator[Problem]:
    names = [p.name for p in case.part]
    if live.part not in names:
        yield ("part",), f"there is no part '{live.part}', expected one of {', '.join(names)}."
        return
    if live.backend not in BACKENDS:
        yield ("backend",), f"unknown back end '{live.backend}', expected {', '.join(BACKENDS)}."
    inputs = live.inputs or case.part[names.index(live.part)].inputs
    yield from _of_inputs(inputs, ("inputs",))
    for parameter, name in live.args.items():
        if name not in inputs:
            yield ("args",), f"{parameter} = '{name}' is no input, expected one of {', '.join(inputs)}."
    part = live_part(case.part[names.index(live.part)], live)
    yield from _refused(("inputs",), lambda: inputs_wanted(part))
    if live.shape.count(-1) != 1:
        yield ("shape",), f"{live.shape} is no shape, expected one -1 for the number of values: [1, -1]."
