"""What is made of a result and its truth: one number each, of an element or of all."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from kl_audit.backends import CandidateError
from kl_audit.cases.criterion import Truth, relative_error
from kl_audit.formats import Float64Array
from kl_audit.oracle.certified import Output


def pick(got: Float64Array, element: int | None, what: str = "result") -> int:
    """Return which element is meant; raises CandidateError where that is not said, or not there."""
    if element is None:
        if got.size != 1:
            raise CandidateError(f"the {what} has {got.size} elements: the case has to say which (element)")
        return 0
    if element >= got.size:
        raise CandidateError(f"the {what} has {got.size} elements, and no element {element}")
    return element


def _max_rel(got: Float64Array, exact: Output) -> float:
    truth = exact.truth
    judged = ~truth.undefined & ~truth.infinite & ~truth.rounds_to_zero
    _, rel = truth.errors(got)
    rel = np.where(np.isfinite(got), rel, np.inf)
    return float(np.max(rel, where=judged, initial=0.0))


def _cosine(got: Float64Array, exact: Output) -> float:
    right = exact.truth.sum.hi * _scale(exact)
    a, b = got / (np.abs(got).max() or 1.0), right / (np.abs(right).max() or 1.0)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    if norms:
        return float(a @ b) / norms
    return float(not a.any() and not b.any())  # a gradient of 0 where it is 0 is as right as can be


def _norm_ratio(got: Float64Array, exact: Output) -> float:
    right = float(np.linalg.norm(exact.truth.sum.hi * _scale(exact)))
    return float(np.linalg.norm(got)) / right if right else math.inf


def _scale(exact: Output) -> Float64Array | float:
    scale = exact.truth.sum.scale
    return 1.0 if scale is None else np.ldexp(1.0, scale.astype(np.int32))


#: By name: the number of a result, and that of a perfect one.
OF_ALL: dict[str, tuple[Callable[[Float64Array, Output], float], Callable[[Output], Truth]]] = {
    "negatives": (
        lambda got, exact: float(np.count_nonzero(got < 0)),
        lambda exact: Fraction(int(np.count_nonzero(exact.truth.sum.hi < 0))),
    ),
    "zeros": (
        lambda got, exact: float(np.count_nonzero(got == 0)),
        lambda exact: Fraction(int(np.count_nonzero(exact.truth.rounds_to_zero))),
    ),
    "nonfinite": (
        lambda got, exact: float(np.count_nonzero(~np.isfinite(got))),
        lambda exact: Fraction(int(np.count_nonzero(exact.truth.undefined | exact.truth.infinite))),
    ),
    "max_rel": (_max_rel, lambda exact: Fraction(0)),
    "cosine": (_cosine, lambda exact: Fraction(1)),
    "norm_ratio": (_norm_ratio, lambda exact: Fraction(1)),
}


def error_of(measure: str, seen: float, truth: Truth) -> float | None:
    """Return the relative error of a number; of those that are relative errors, the number itself."""
    return seen if measure in ("max_rel", "mode_gap") else relative_error(seen, truth)


def mode_gap(got: Float64Array, eager: Float64Array) -> float:
    """Return the greatest difference from the eager result, relative to it."""
    with np.errstate(all="ignore"):
        gap = np.abs(got - eager) / np.abs(eager)
    gap = np.where((got == eager) | (np.isnan(got) & np.isnan(eager)), 0.0, np.nan_to_num(gap, nan=np.inf))
    return float(gap.max(initial=0.0))
