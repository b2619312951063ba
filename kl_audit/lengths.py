"""Length matters: vectorised kernels treat short arrays and tails differently."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kl_audit.backends import Evaluate
from kl_audit.formats import FloatArray

LENGTHS = range(1, 10)


@dataclass(frozen=True)
class Difference:
    """A result at a short length that is not the one at vector length."""

    length: int
    inputs: tuple[float, ...]
    at_vector: float
    at_length: float


@dataclass
class LengthReport:
    """What the special inputs gave, and where the length of the array changed a result."""

    inputs: list[tuple[float, ...]]  #: the special inputs
    results: list[float]  #: and their results at vector length
    differences: list[Difference] = field(default_factory=list)
    compared: int = 0


def exercise_lengths(
    evaluate: Evaluate, columns: tuple[FloatArray, ...], at_vector: FloatArray, worst: int
) -> LengthReport:
    """Evaluate the points in arrays of 1 to 9 and compare, bit for bit but for nan.

    The first ``worst`` points are the row's worst; the rest are special values, whose results are
    kept in the report.
    """
    wide = [c.astype(np.float64) for c in columns]
    expected = at_vector.astype(np.float64)
    points = list(zip(*(c.tolist() for c in wide), strict=True))
    report = LengthReport(points[worst:], expected[worst:].tolist())
    n = len(points)
    for length in LENGTHS:
        index = np.resize(np.arange(n), -(-n // length) * length)
        for start in range(0, len(index), length):
            batch = index[start : start + length]
            got = evaluate(*(c[batch] for c in columns)).astype(np.float64)
            same = (got == expected[batch]) | (np.isnan(got) & np.isnan(expected[batch]))
            same &= (np.signbit(got) == np.signbit(expected[batch])) | np.isnan(got)
            report.compared += length
            for i in np.flatnonzero(~same):
                j = int(batch[i])
                report.differences.append(Difference(length, points[j], float(expected[j]), float(got[i])))
    return report
