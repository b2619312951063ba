"""How much of an error the log-probabilities brought along: their rounding, apart from the formula's.

Log-probabilities are drawn in float64, rounded to the dtype, and given to the candidate.  The quantity at
the unrounded ones, at the rounded ones, and the candidate's result are three numbers: the step from
the first to the second is the input's fault, from the second to the third the formula's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kl_audit.backends import CandidateError, Unavailable
from kl_audit.formats import FP64, Float64Array, Format
from kl_audit.sweep import Row, padded

#: Pairs drawn in each decade of |d|.
SAMPLES = 1024
#: Decades of |d| that are looked at.
DECADES = tuple((float(f"1e{k}"), float(f"1e{k + 1}")) for k in range(-6, 1))
#: Log-probabilities are drawn log-uniformly between these, as tokens from likely to rare.
LEAST, GREATEST = 2.0**-8, 16.0


@dataclass(frozen=True)
class InputRounding:
    """Relative errors in one decade of |d|, of the quantity at the unrounded log-probabilities."""

    lo: float
    hi: float
    points: int
    input_median: float  #: what rounding the log-probabilities had already done
    input_max: float
    formula_median: float  #: what the candidate added
    formula_max: float


def input_rounding(row: Row, seed: int) -> list[InputRounding]:
    """Return the split for each decade of |d|; empty unless the row is a value of a pair."""
    quantity, fmt = row.block.quantity, row.block.fmt
    pair = set(quantity.inputs) == {"policy", "reference"}
    if row.evaluate is None or row.failed or row.block.output != "value" or not pair:
        return []
    found = []
    for k, (lo, hi) in enumerate(DECADES):
        rng = np.random.default_rng(np.random.SeedSequence((seed, 5, k)))
        d = np.exp(rng.uniform(np.log(lo), np.log(hi), SAMPLES)) * rng.choice([-1.0, 1.0], SAMPLES)
        policy = -np.exp(rng.uniform(np.log(LEAST), np.log(GREATEST), SAMPLES))
        policy = np.minimum(policy, -np.maximum(d, 0))  # the reference, policy + d, is <= 0 too
        split = _split(row, fmt, policy, policy + d)
        if split is not None:
            before, added = split
            found.append(
                InputRounding(
                    lo, hi, SAMPLES, float(np.median(before)), float(before.max()),
                    float(np.median(added)), float(added.max()),
                )
            )  # fmt: skip
    return found


def _split(
    row: Row, fmt: Format, policy: Float64Array, reference: Float64Array
) -> tuple[Float64Array, Float64Array] | None:
    assert row.evaluate is not None
    named = {"policy": policy, "reference": reference}
    wide = tuple(named[name] for name in row.block.quantity.inputs)
    stored = tuple(fmt.cast(c) for c in wide)
    try:
        got = padded(row.evaluate, stored, SAMPLES).astype(np.float64)
    except (CandidateError, Unavailable):
        return None
    ideal = _number(row, wide)
    seen = _number(row, tuple(c.astype(np.float64) for c in stored))
    with np.errstate(divide="ignore", invalid="ignore"):
        before = np.abs(seen - ideal) / np.abs(ideal)
        added = np.where(np.isfinite(got), np.abs(got - seen), np.inf) / np.abs(ideal)
    return np.nan_to_num(before, posinf=np.inf), np.nan_to_num(added, posinf=np.inf)


def _number(row: Row, columns: tuple[Float64Array, ...]) -> Float64Array:
    """Return the truth of the objective as float64, by balls: the inputs are float64."""
    total = row.side.truth(columns, FP64).sum
    scale = 0 if total.scale is None else total.scale
    out: Float64Array = np.ldexp(total.hi + total.lo, scale)
    return out


def describe(fmt: Format, parts: list[InputRounding]) -> str | None:
    """Say in one phrase where the input's rounding outweighs the formula; None where nowhere."""
    ruined = [p for p in parts if p.input_median >= 0.1]
    if not ruined:
        return None
    top = ruined[-1]
    near, far = (2.0 ** (np.frexp(x)[1] - fmt.precision) for x in (0.499, 10.0))
    return (
        f"{fmt.name} log-probabilities are {near:.3g} apart just inside -0.5 and {far:.3g} near -10: "
        f"for |d| in [{top.lo:g}, {top.hi:g}) their rounding has changed the value by "
        f"{top.input_median:.0%} (median; at most {top.input_max:.3g} times) before the formula, "
        f"which adds {top.formula_median:.2g} (median)"
    )
