"""What a part computes with, and what is right: candidates and exact references."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kl_audit.audit.expressed import reference_of
from kl_audit.audit.infinite import problem_at_infinity
from kl_audit.audit.tried import Problem
from kl_audit.callee import load
from kl_audit.cases.inputs import EXACT
from kl_audit.cases.model import Live, Made, Part, Subject
from kl_audit.errors import UsageError
from kl_audit.expression import Expression, parse
from kl_audit.formulations import find_formulations
from kl_audit.formulations.vectors import vector_formulations_of
from kl_audit.quantities import QUANTITIES, find_quantity
from kl_audit.quantities.base import Candidate
from kl_audit.quantities.vectors import VECTORS, find_vector
from kl_audit.sweep import lifted

#: The package of the functions that built-in cases name.
OWN = "kl_audit.reported."


def inputs_wanted(part: Part) -> tuple[str, ...]:
    """Return the inputs in the order of the quantity, or of the file; raises UsageError for a misfit."""
    have = tuple(part.inputs)
    if part.quantity is not None:
        wanted = _quantity_inputs(part.quantity)
        if set(wanted) != set(have):
            raise UsageError(f"{part.quantity} takes {', '.join(wanted)}; the inputs are {', '.join(have)}.")
        have = wanted
    if part.formulation is not None and part.quantity is not None:
        _formulation(part.quantity, part.formulation)
    for cure in part.cure:
        if cure.formulation is not None:
            if part.quantity is None:
                raise UsageError("a formulation as a cure needs the quantity that it computes.")
            _formulation(part.quantity, cure.formulation)
    formulas = (part.expr, part.truth, *(cure.expr for cure in part.cure))
    for text in (t for t in formulas if t is not None):
        missing = [n for n in parse(text).names if n not in have and n not in part.with_]
        if missing:
            raise UsageError(
                f"the formula '{text}' has a '{missing[0]}' that is neither an input nor a constant (with)."
            )
    return have


def _quantity_inputs(name: str) -> tuple[str, ...]:
    if name in VECTORS:
        return tuple(i.name for i in find_vector(name).inputs)
    if name not in QUANTITIES:
        known = ", ".join((*QUANTITIES, *VECTORS))
        raise UsageError(f"unknown quantity '{name}'. Known: {known}.")
    return find_quantity(name).inputs


def _formulation(quantity: str, name: str) -> Candidate:
    if quantity in VECTORS:
        known = {f.name: f for f in vector_formulations_of(quantity)}
        if name not in known:
            raise UsageError(f"unknown formulation of {quantity} '{name}'. Known: {', '.join(known)}.")
        return known[name].fn
    q = find_quantity(quantity)
    return lifted(q, find_formulations(q, [name])[0])


def is_real(part: Part, name: str) -> bool:
    """Whether an input is rounded to a dtype: not an index, not a mask."""
    value = part.inputs[name]
    return not (isinstance(value, Made) and value.dtype in EXACT)


def problem_of(part: Part) -> Problem:
    """Return what is right, as a formula on exact arrays."""
    names = inputs_wanted(part)
    real = tuple(n for n in names if is_real(part, n))
    reference, elementwise = _reference(part)
    return Problem(part.quantity or "formula", names, real, real, reference, elementwise=elementwise)


def _reference(part: Part) -> tuple[Callable[..., Any], bool]:
    if part.quantity is not None and part.quantity in VECTORS:
        return find_vector(part.quantity).reference, False
    if part.quantity is not None:
        found = problem_at_infinity(find_quantity(part.quantity), None)
        return found.reference, True
    expression = parse(part.truth or part.expr or "")
    return reference_of(expression, _numbers(part, expression)), expression.elementwise


def formula_of(part: Part) -> Problem | None:
    """Return the part's own formula as a problem, where it is another than what is right."""
    if part.expr is None or (part.truth is None and part.quantity is None):
        return None
    names = inputs_wanted(part)
    real = tuple(n for n in names if is_real(part, n))
    expression = parse(part.expr)
    reference = reference_of(expression, _numbers(part, expression))
    return Problem("formula", names, real, real, reference, elementwise=expression.elementwise)


def _numbers(part: Part, expression: Expression) -> dict[str, float]:
    found = {}
    for name, value in part.with_.items():
        if name in expression.names:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UsageError(f"with {name} = {value!r}: expected a number in a formula.")
            found[name] = float(value)
    return found


def candidate_of(subject: Subject, part: Part, allow_import: bool) -> Candidate:
    """Return ``fn(xp, *inputs)``; raises UsageError, also for a function that may not be imported."""
    names = inputs_wanted(part)
    if subject.expr is not None:
        expression = parse(subject.expr)
        bound = expression.bind(_numbers(part, expression))
        return lambda xp, *arrays: bound(xp, **dict(zip(names, arrays, strict=True)))
    if subject.formulation is not None:
        return _formulation(part.quantity or "", subject.formulation)
    return imported(subject.function or "", names, part.with_, allow_import)


def imported(spec: str, names: tuple[str, ...], constants: dict[str, Any], allowed: bool) -> Candidate:
    """Return a function of an installed package as a candidate; raises UsageError."""
    if not allowed and not spec.startswith(OWN):
        raise UsageError(f"{spec} is a function of a case file of yours; --allow-import lets it be imported.")
    fn = load(spec).fn
    try:
        parameters = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):  # compiled code: it takes the inputs in order
        return lambda xp, *arrays: fn(*arrays, **constants)

    def call(xp: Any, *arrays: Any) -> Any:
        named = dict(zip(names, arrays, strict=True)) | constants
        return fn(xp, **named) if parameters[:1] == ["xp"] else fn(**named)

    return call


def live_part(part: Part, live: Live) -> Part:
    """Return the part as its function takes it; with other inputs its truth is a formula of those."""
    changes: dict[str, Any] = {"backends": [live.backend], "reported": part.reported}
    if live.inputs:
        changes["inputs"] = live.inputs
        if part.quantity in ("k1", "k2", "k3", "ratio") and {"policy", "reference"} <= set(live.inputs):
            changes |= {"quantity": f"{part.quantity}-pair", "expr": None, "wrt": "policy"}
    if live.dtype:
        changes["dtype"] = live.dtype
    return part.model_copy(update=changes)
