"""Whose fault a wrong result is: that of rounding, of the formula even without it, or of neither."""

from __future__ import annotations

import math
from fractions import Fraction

from kl_audit.cases.criterion import Truth, relative_error
from kl_audit.cases.rows import Row

#: In words, and the finding that goes with it.
CODES = {"formula": "KLA601", "nothing": "KLA602"}


def settle(row: Row, own: Truth) -> None:
    """Fill in ``blame``; ``own`` is the part's own formula without rounding, None where unknown."""
    if row.seen is None or row.part.measure != "result":
        return
    limit = row.part.tolerance
    if row.error is not None and row.error <= limit:
        row.blame = "nothing"
        row.code = CODES["nothing"] if row.outcome == "reproduced" else None
        return
    if own is None or row.truth is None:
        return
    if not _differ(own, row.truth, limit):
        row.blame = "arithmetic"
    elif not _differ_from(row.seen, own, limit):
        row.blame = "formula"
    else:
        row.blame = "both"
    row.code = CODES.get(row.blame)


def _differ(a: Truth, b: Truth, limit: float) -> bool:
    if not isinstance(a, Fraction) or not isinstance(b, Fraction):
        return a != b
    return abs(a - b) > Fraction(limit) * abs(b)


def _differ_from(seen: float, own: Truth, limit: float) -> bool:
    error = relative_error(seen, own)
    return error is None or math.isnan(error) or error > limit
