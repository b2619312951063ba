"""Which argument of a function is which: the inputs of a quantity matched to parameters."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass, field
from typing import Any, Literal

from kl_audit.callee.literals import parse_constants
from kl_audit.callee.load import Loaded
from kl_audit.callee.roles import ROLES, classify, find_role, unclear_pair
from kl_audit.errors import UsageError

Parameter = inspect.Parameter

NO_SIGNATURE = "its signature cannot be read: the inputs are passed by position, in the order {}"
SIGN = (
    "'{}' is given d = log p_reference - log p_policy; a function that takes the opposite difference "
    "computes another quantity"
)


@dataclass(frozen=True)
class Binding:
    """How a function is called: which parameter each input goes to, and what the others get."""

    inputs: tuple[str, ...]
    slots: dict[str, str]  #: input -> parameter; a position as text where there are no names
    constants: dict[str, Any]  #: parameter -> value
    masks: tuple[str, ...]  #: parameters that are given ones (or True) everywhere
    positional: tuple[str, ...]  #: parameters passed by position, in order; the others by name
    notes: tuple[str, ...] = ()

    def arrange(self, values: tuple[Any, ...], ones: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named arguments, given a value for each input."""
        named = dict(self.constants)
        for role, value in zip(self.inputs, values, strict=True):
            named[self.slots[role]] = value
        for name in self.masks:
            named[name] = ones
        return [named.pop(name) for name in self.positional], named

    def __str__(self) -> str:
        """Return ``policy=logprob, reference=ref_logprob; kl_penalty='k3'``."""
        inputs = ", ".join(f"{role}={place}" for role, place in self.slots.items())
        rest = [f"{name}={value!r}" for name, value in self.constants.items()]
        rest += [f"{name}=ones" for name in self.masks]
        return f"{inputs}; {', '.join(rest)}" if rest else inputs


@dataclass
class _Matching:
    """A binding while it is being made."""

    loaded: Loaded
    inputs: tuple[str, ...]
    constants: dict[str, Any]
    parameters: dict[str, Parameter]  #: those with a name to pass by
    takes_any: bool  #: has ``**kwargs``
    slots: dict[str, str] = field(default_factory=dict)
    masks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def shown(self) -> str:
        return show(self.loaded)

    def free(self) -> list[str]:
        """Return the parameters that have been given nothing."""
        taken = {*self.constants, *self.slots.values(), *self.masks}
        return [name for name in self.parameters if name not in taken]

    def required(self) -> list[str]:
        """Return the free parameters that have no default."""
        return [n for n in self.free() if self.parameters[n].default is Parameter.empty]

    def unmatched(self) -> list[str]:
        return [role for role in self.inputs if role not in self.slots]


def show(loaded: Loaded) -> str:
    """Return ``kl_penalty(logprob, ref_logprob, kl_penalty='k3')``, without the annotations."""
    if loaded.signature is None:
        return f"{loaded.short}(...)"
    bare = [p.replace(annotation=Parameter.empty) for p in loaded.signature.parameters.values()]
    signature = loaded.signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    return f"{loaded.short}{signature}"


def bind(
    loaded: Loaded, inputs: tuple[str, ...], args_text: str | None = None, with_items: list[str] | None = None
) -> Binding:
    """Match the inputs of a quantity to the parameters of a function.

    ``args_text`` is ``policy=logprob,ref=ref_logprob`` (a role, or an alias of it, and a parameter or
    its position) or roles in the order of the parameters; what it leaves out, and everything
    without it, goes by the parameters' names.  ``with_items`` are constants, ``name=value``.
    A parameter that is named as a mask is given ones.  Raises UsageError, which shows the
    signature and what to say.
    """
    constants = parse_constants(with_items or [])
    if loaded.signature is None:
        return _by_position(loaded, inputs, args_text, constants)
    given = loaded.signature.parameters.values()
    named = {p.name: p for p in given if p.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)}
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in given)
    m = _Matching(loaded, inputs, constants, named, takes_any)
    for name in constants:
        _check_parameter(m, name, "--with")
    for role, place in _entries(args_text, inputs):
        _assign(m, role, place)
    if m.unmatched():
        _infer(m)
    _fill_masks(m)
    if m.unmatched():
        raise _no_place(m)
    if m.required():
        raise _left_over(m)
    if m.slots.get("d"):
        m.notes.append(SIGN.format(m.slots["d"]))
    return Binding(inputs, {r: m.slots[r] for r in inputs}, constants, tuple(m.masks), _positional(m),
                   tuple(m.notes))  # fmt: skip


def wants(loaded: Loaded, args_text: str | None = None) -> Literal["d", "pair"] | None:
    """Say whether a function takes a log-ratio d or the pair (policy, reference); None if unclear.

    A function with one required parameter that no name explains takes d.
    """
    if args_text:
        roles = {r for r, _ in _entries(args_text, ("d", "policy", "reference"), strict=False)}
    elif loaded.signature is None:
        return None
    else:
        parameters = loaded.signature.parameters
        unclear = unclear_pair(list(parameters))
        roles = {role for n in parameters if n not in unclear for role in classify(n)}
        if not roles and sum(p.default is Parameter.empty for p in parameters.values()) == 1:
            return "d"
    if {"policy", "reference"} <= roles:
        return "pair"
    return "d" if "d" in roles else None


def wants_d(loaded: Loaded, args_text: str | None = None) -> bool:
    """Whether a function takes a log-ratio d."""
    return wants(loaded, args_text) == "d"


def wants_pair(loaded: Loaded, args_text: str | None = None) -> bool:
    """Whether a function takes the log-probabilities of the policy and of the reference."""
    return wants(loaded, args_text) == "pair"


def _entries(
    args_text: str | None, inputs: tuple[str, ...], strict: bool = True
) -> list[tuple[str, str | int]]:
    """Return (role, parameter or position) of each entry of ``--args``."""
    entries: list[tuple[str, str | int]] = []
    for i, entry in enumerate(e.strip() for e in (args_text or "").split(",") if e.strip()):
        word, equals, place = (part.strip() for part in entry.partition("="))
        role = find_role(word, inputs)
        if role is None:
            if not strict:
                continue
            raise UsageError(f"--args: '{word}' is no input of the quantity, which takes {_list(inputs)}.")
        if role in (r for r, _ in entries):
            raise UsageError(f"--args gives {role} twice.")
        if equals and not place:
            raise UsageError(f"--args '{entry}' is not of the form role=parameter.")
        entries.append((role, (int(place) if place.isdecimal() else place) if equals else i))
    return entries


def _check_parameter(m: _Matching, name: str, option: str) -> None:
    if name in m.parameters or m.takes_any:
        return
    close = difflib.get_close_matches(name, m.parameters, 1)
    hint = f"did you mean {close[0]}?" if close else f"it has {_list(tuple(m.parameters))}."
    raise UsageError(f"{option}: {m.shown} has no parameter '{name}'; {hint}")


def _assign(m: _Matching, role: str, place: str | int) -> None:
    """Put a role where ``--args`` says."""
    if isinstance(place, int):
        names = [n for n, p in m.parameters.items() if p.kind is not Parameter.KEYWORD_ONLY]
        if place >= len(names):
            raise UsageError(f"--args: {m.shown} has no position {place}; it has {len(names)}, from 0.")
        place = names[place]
    _check_parameter(m, place, "--args")
    if place in m.slots.values() or place in m.masks:
        raise UsageError(f"--args gives '{place}' two inputs.")
    if place in m.constants:
        raise UsageError(f"'{place}' is given both an input by --args and a value by --with.")
    if role == "mask" and "mask" not in m.inputs:
        m.masks.append(place)
    else:
        m.slots[role] = place


def _infer(m: _Matching) -> None:
    """Match what is left by the parameters' names."""
    free = m.free()
    unclear = unclear_pair(free)
    by_role = {r: [n for n in free if n not in unclear and _may_be(n, r)] for r in m.unmatched()}
    for role, names in by_role.items():
        exact = [n for n in names if n.lower() == role]
        required = [n for n in names if n in m.required()]
        chosen = next((c for c in (exact, required, names) if len(c) == 1), None)
        if chosen:
            m.slots[role] = chosen[0]
        elif names:
            raise UsageError(
                f"{m.shown}: {role} may be {' or '.join(names)}; say which with --args {role}={names[0]}."
            )
    # One input and one parameter: there is nothing else that it could be.
    if len(m.inputs) == 1 and m.unmatched() and len(m.required()) == 1:
        (name,) = m.required()
        if not classify(name):
            m.slots[m.inputs[0]] = name
            m.notes.append(f"'{name}' is taken to be {m.inputs[0]}, being the only required parameter")


def _may_be(name: str, role: str) -> bool:
    """Whether a parameter's name says a role, or, for an input of a formula, what the input's says."""
    said = classify(name)
    return name.lower() == role or role in said or (role not in ROLES and bool(said & classify(role)))


def _fill_masks(m: _Matching) -> None:
    for name in m.free():
        parameter = m.parameters[name]
        switch = isinstance(parameter.default, bool) or parameter.annotation in (bool, "bool")
        if classify(name) == {"mask"} and not switch:
            m.masks.append(name)


def _no_place(m: _Matching) -> UsageError:
    """Explain that an input has no parameter: the other kind of function, or names that say nothing."""
    found = {role: n for n in m.parameters for role in ("d", "policy", "reference") if role in classify(n)}
    missing = m.unmatched()
    if missing == ["d"] and {"policy", "reference"} <= found.keys():
        return UsageError(
            f"{m.shown} takes a pair of log-probabilities (policy '{found['policy']}', reference "
            f"'{found['reference']}'), not a log-ratio d: audit a quantity of the pair, such as k3-pair."
        )
    if {"policy", "reference"} <= set(missing) and "d" in found:
        return UsageError(
            f"{m.shown} takes a log-ratio ('{found['d']}'), not a pair of log-probabilities: "
            "audit a quantity of d, such as k3."
        )
    example = ",".join(f"{role}={m.slots.get(role, 'NAME')}" for role in m.inputs)
    return UsageError(f"{m.shown}: {_matched(m)}no parameter is known to be {_list(tuple(missing))}; "
                      f"say which with --args {example}.")  # fmt: skip


def _left_over(m: _Matching) -> UsageError:
    names = m.required()
    example = " ".join(f"--with {n}=VALUE" for n in names)
    hint = ""
    if any("old" in classify(n) for n in names):
        hint = ", or audit a quantity with the input old, such as weighted-k3-pair"
    return UsageError(f"{m.shown}: {_matched(m)}nothing is known for {_list(tuple(names))}; "
                      f"give a value with {example}{hint}.")  # fmt: skip


def _matched(m: _Matching) -> str:
    parts = [f"{role} is '{name}'" for role, name in m.slots.items()]
    return f"{', '.join(parts)}; " if parts else ""


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) if names else "none"


def _positional(m: _Matching) -> tuple[str, ...]:
    """Return the parameters to pass by position: those before the first that is left to its default."""
    given = {*m.constants, *m.slots.values(), *m.masks}
    names: list[str] = []
    for name, parameter in m.parameters.items():
        if name not in given or parameter.kind is Parameter.KEYWORD_ONLY:
            break
        names.append(name)
    return tuple(names)


def _by_position(
    loaded: Loaded, inputs: tuple[str, ...], args_text: str | None, constants: dict[str, Any]
) -> Binding:
    """Bind a function whose parameters are unknown."""
    slots: dict[str, str] = {}
    masks: list[str] = []
    entries = _entries(args_text, inputs) or list(enumerate_roles(inputs))
    for role, place in entries:
        if role == "mask" and "mask" not in inputs:
            masks.append(str(place))
        else:
            slots[role] = str(place)
    missing = [role for role in inputs if role not in slots]
    if missing:
        raise UsageError(f"{show(loaded)}: its signature cannot be read, and --args leaves out {missing[0]}.")
    used = [*slots.values(), *masks]
    places = sorted((p for p in used if p.isdecimal()), key=int)
    if len(set(used)) < len(used) or [int(p) for p in places] != list(range(len(places))):
        raise UsageError(f"{show(loaded)}: the positions in --args must be 0, 1, ... without gaps.")
    order = ", ".join(role for role, _ in entries)
    return Binding(inputs, {r: slots[r] for r in inputs}, constants, tuple(masks), tuple(places),
                   (NO_SIGNATURE.format(order),))  # fmt: skip


def enumerate_roles(inputs: tuple[str, ...]) -> list[tuple[str, str | int]]:
    """Return each input with its own position."""
    return [(role, i) for i, role in enumerate(inputs)]
