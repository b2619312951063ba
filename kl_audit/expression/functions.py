"""The functions that a formula may call: their names, their aliases and their signatures."""

from __future__ import annotations

from dataclasses import dataclass

from kl_audit.formats import FORMATS


@dataclass(frozen=True)
class Function:
    """What the parser has to know of a function."""

    name: str
    signature: str  #: shown in errors
    arity: int = 1  #: how many arrays it takes
    along: bool = False  #: it works along an axis, and takes ``axis`` (or ``dim``)
    whole: bool = False  #: without an axis it reduces over all of them
    is_truth: bool = False  #: its values are true or false
    folds: bool = True  #: of constants it is a constant


def _function(name: str, *parameters: str, **what: bool) -> Function:
    arity = sum(not p.startswith("axis") for p in parameters)
    return Function(name, f"{name}({', '.join(parameters)})", arity, **what)


_ONE = [
    "exp", "expm1", "log", "log1p", "sqrt", "abs", "sigmoid", "softplus", "log_sigmoid",
    "square", "stop_gradient", "nan_to_num",
]  # fmt: skip
_CASTS = {f.name: f.short for f in FORMATS.values()}

#: All functions by their canonical name.  ``min`` and ``max`` are the reductions.
FUNCTIONS: dict[str, Function] = {
    f.name: f
    for f in (
        *(_function(n, "x") for n in _ONE),
        *(_function(n, "x", is_truth=True, folds=False) for n in ("isnan", "isinf", "isfinite")),
        *(_function(n, "a", "b") for n in ("minimum", "maximum", "logaddexp", "xlogy")),
        _function("where", "condition", "a", "b"),
        _function("clip", "x", "low", "high"),
        *(
            _function(n, "x", "axis=None", along=True, whole=True, folds=False)
            for n in ("sum", "mean", "max", "min")
        ),
        *(
            _function(n, "x", "axis=-1", along=True, folds=False)
            for n in ("logsumexp", "log_softmax", "softmax", "cumsum")
        ),
        *(_function(n, "x", folds=False) for n in _CASTS),
    )
}

#: Casts by canonical name, which is that of the format.
CASTS = frozenset(_CASTS)

ALIASES: dict[str, str] = {
    "logsigmoid": "log_sigmoid",
    "clamp": "clip",
    "sg": "stop_gradient",
    "detach": "stop_gradient",
    **{short: long for long, short in _CASTS.items()},
}

#: Constants by name.
CONSTANTS = frozenset({"pi", "e", "inf", "nan"})

#: Modules whose spelling of a function is understood: ``torch.exp(x)`` is ``exp(x)``.
PREFIXES = frozenset({
    "torch", "torch.special", "torch.nn.functional", "F", "np", "numpy", "jnp", "jax.numpy", "jax.nn",
    "jax.lax", "jax.scipy.special", "scipy.special", "math",
})  # fmt: skip

#: Spellings of one keyword.
AXIS_KEYWORDS = ("axis", "dim")
LIMIT_KEYWORDS = {"min": 0, "low": 0, "a_min": 0, "max": 1, "high": 1, "a_max": 1}


def find_function(name: str) -> Function | None:
    """Return a function by its name or alias, or None."""
    return FUNCTIONS.get(ALIASES.get(name, name))


def default_axis(function: str) -> int | None:
    """Return the axis of a function that is called without one."""
    return None if FUNCTIONS[function].whole else -1


def function_names() -> list[str]:
    """Return all names that can be called, aliases included, in alphabetic order."""
    return sorted([*FUNCTIONS, *ALIASES])
