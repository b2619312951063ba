"""The number of entries at which an accumulation stalls: equal entries, more and more of them."""

from __future__ import annotations

from kl_audit.audit.thresholds import Threshold
from kl_audit.audit.tried import Problem
from kl_audit.backends import CandidateError, Unavailable
from kl_audit.errors import OracleError
from kl_audit.formats import Format, find_format
from kl_audit.oracle.certified import evaluate
from kl_audit.quantities.base import Candidate
from kl_audit.quantities.vector_base import VectorQuantity
from kl_audit.sweep import Target

#: The most entries that are tried.
MOST = 1 << 15
LEVEL = 0.01


def find_stall(
    vector: VectorQuantity, problem: Problem, fn: Candidate, fmt: Format, target: Target
) -> Threshold | None:
    """Return the least count, of those tried, at which the value is off by more than 1 %."""
    if vector.flat is None:
        return None
    flat = vector.flat
    run = target.backend.array_evaluator(fn, target.mode, target.device)

    def result(n: int) -> tuple[float, float, bool]:
        case = flat(fmt, n)
        arrays = [
            fmt.cast(case.inputs[name]) if name in problem.real else case.inputs[name]
            for name in problem.inputs
        ]
        value, _ = run(*arrays)
        real = {name: case.inputs[name] for name in problem.real}
        others = {name: v for name, v in case.inputs.items() if name not in real}
        exact = evaluate(problem.reference, real, (), find_format(value.dtype.name), constants=others)
        (right,) = exact.value.fractions([0])
        got, want = float(value.reshape(-1)[0]), float(right)
        return got, want, want != 0 and not abs(got - want) <= LEVEL * abs(want)

    try:
        low, high = 1, 2
        while high <= MOST and not result(high)[2]:
            low, high = high, high * 2
        if high > MOST:
            return None
        while high - low > 1 and not target.compiles:
            middle = (low + high) // 2
            low, high = (low, middle) if result(middle)[2] else (middle, high)
        got, want, _ = result(high)
    except (CandidateError, Unavailable, OracleError):
        return None
    at = "from" if not target.compiles else "at the latest from"
    text = f"off by more than 1 % {at} {high:,} equal entries: {got:.6g}, right {want:.6g}"
    return Threshold("stall", float(high), "bisection", text, got, want)
