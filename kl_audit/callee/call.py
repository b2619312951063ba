"""A function of the user's as a candidate, ``fn(xp, *inputs)``.

A candidate also runs while torch.compile or jax.jit traces it: it prints nothing, catches no output,
looks at no values and leaves NumPy out.  Everything of that kind is found out before, by ``probe``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kl_audit.backends.base import CandidateError
from kl_audit.callee.arguments import Binding
from kl_audit.callee.load import Loaded
from kl_audit.callee.outputs import as_array, take
from kl_audit.callee.raised import candidate_error
from kl_audit.quantities.base import Candidate

#: A shape with one -1, for the n elements.
Shape = tuple[int, ...]

#: The shapes that a function is offered, in order: tokens, one sequence, n sequences, with a head.
SHAPES: tuple[Shape, ...] = ((-1,), (1, -1), (-1, 1), (1, 1, -1))

#: What a mask is made of: True, or the number 1 in the dtype of the inputs.
Mask = Literal["bool", "float"]


@dataclass(frozen=True)
class ShapePlan:
    """How a function wants its inputs; ``probe`` finds it."""

    shape: Shape | None = (-1,)  #: None passes arrays, and the result, as they are
    mask: Mask = "bool"
    pointwise: bool = False  #: it reduces: call it for one element at a time
    copies: bool = False  #: it changes its inputs: give it copies

    def __str__(self) -> str:
        """Return the shape as ``[1, n]``."""
        if self.shape is None:
            return "as given"
        return f"[{', '.join('n' if s == -1 else str(s) for s in self.shape)}]"


def invoke(loaded: Loaded, binding: Binding, plan: ShapePlan, xp: Any, arrays: tuple[Any, ...]) -> Any:
    """Call the function on arrays (shaped by the plan) and return what it returns.

    Raises CandidateError for what it raises, with the line in its own file.
    """
    if plan.copies:
        arrays = tuple(copied(x) for x in arrays)
    if plan.shape is not None and plan.shape != (-1,):
        arrays = tuple(xp.reshape(x, filled(plan.shape, x.shape[0])) for x in arrays)
    first = next((x for x, r in zip(arrays, binding.inputs, strict=True) if r != "mask"), arrays[0])
    ones = xp.full(tuple(first.shape), 1.0, first) if binding.masks else None
    if ones is not None and plan.mask == "bool":
        ones = xp.as_bool(ones)
    if "mask" in binding.inputs:
        arrays = tuple(_as_mask(xp, x, first, plan) if r == "mask" else x
                       for x, r in zip(arrays, binding.inputs, strict=True))  # fmt: skip
    args, named = binding.arrange(arrays, ones)
    try:
        return loaded.fn(*args, **named)
    except CandidateError:
        raise
    except (Exception, SystemExit) as error:
        raise candidate_error(error, loaded.file) from error


def candidate(loaded: Loaded, binding: Binding, output_key: str | None, plan: ShapePlan) -> Candidate:
    """Return the function as ``fn(xp, *inputs)``: arrays of shape (n,) to a result of shape (n,).

    ``output_key`` names the result in what the function returns (``Probe.output``); None where it is
    all that is returned.  With ``plan.pointwise`` the function is called n times, on one element each.
    Raises CandidateError.
    """

    def once(xp: Any, arrays: tuple[Any, ...]) -> Any:
        returned = invoke(loaded, binding, plan, xp, arrays)
        return as_array(xp, returned if output_key is None else take(returned, output_key))

    def elementwise(xp: Any, *arrays: Any) -> Any:
        result = once(xp, arrays)
        shape = tuple(arrays[0].shape)
        return result if tuple(result.shape) == shape else xp.reshape(result, shape)

    def pointwise(xp: Any, *arrays: Any) -> Any:
        n = arrays[0].shape[0]
        results = [once(xp, tuple(x[i : i + 1] for x in arrays)) for i in range(n)]
        return xp.stack([xp.reshape(r, ()) for r in results])

    def as_given(xp: Any, *arrays: Any) -> Any:
        return once(xp, arrays)

    if plan.shape is None:
        return as_given
    return pointwise if plan.pointwise else elementwise


def filled(shape: Shape, n: int) -> Shape:
    """Return a shape with n in place of -1."""
    return tuple(n if s == -1 else s for s in shape)


def copied(x: Any) -> Any:
    """Return a copy with the same bits, through which gradients flow."""
    return x.clone() if hasattr(x, "clone") else x.copy()


def _as_mask(xp: Any, mask: Any, ref: Any, plan: ShapePlan) -> Any:
    return xp.as_bool(mask) if plan.mask == "bool" else xp.like(mask, ref)
