"""Cost per point of the engine against a plain mpmath loop over the same work, as a ratio in one run.

Run as a program; it prints what it measured and asserts nothing.
"""

from __future__ import annotations

import resource
import time

import mpmath
from conftest import Silent

from kl_audit.backends import BACKENDS
from kl_audit.checks import judge
from kl_audit.formats import BF16, FP32
from kl_audit.formulations import find_formulations
from kl_audit.grids import Decades, Exhaustive
from kl_audit.quantities import K3, QUANTITIES
from kl_audit.sweep import Block, Target, sweep


def mpmath_loop(points: list[float], results: list[list[float]], precision: int) -> float:
    """Return the seconds that mpmath takes for the truth and each row's error at every point."""
    start = time.perf_counter()
    with mpmath.workprec(precision):
        for i, x in enumerate(points):
            d = mpmath.mpf(x)
            truth = mpmath.expm1(d) - d
            for row in results:
                abs(mpmath.mpf(row[i]) - truth) / abs(truth)
    return time.perf_counter() - start


def main() -> None:
    """Measure both, for bf16 over everything and for one float32 row."""
    torch = Target(BACKENDS["torch"], "eager", "cpu")
    for fmt, grid, names in ((BF16, Exhaustive(), []), (FP32, Decades(20000), ["expm1"])):
        fs = tuple(find_formulations(QUANTITIES["k3"], names))
        block = Block(K3, "value", fmt, grid, fs, (torch,))
        list(sweep([Block(K3, "value", fmt, Decades(10), fs, (torch,))], 0, 5, Silent()))  # warm
        start = time.perf_counter()
        rows = [(r, judge(r)) for r in sweep([block], 0, 5, Silent())]
        ours = time.perf_counter() - start
        n = rows[0][0].tally.points
        xs = [float(x) for chunk in grid.chunks(fmt, 0) for x in chunk[:: max(1, n // 4000)]]
        xs = [x for x in xs if 0 < abs(x) < 80]
        loop = mpmath_loop(xs, [xs] * len(rows), 400) / len(xs)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{fmt.short}: {n:,} points x {len(rows)} rows: {ours / n * 1e6:.2f} us a point; "
            f"mpmath loop {loop * 1e6:.1f} us; ratio {loop / (ours / n):.0f}; peak memory {peak:.0f} MiB"
        )


if __name__ == "__main__":
    main()
