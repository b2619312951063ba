"""Cases of a quantity, their certified truth, and how far a formulation is from it."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from kl_audit.backends import BACKENDS
from kl_audit.formats import FP32, find_format
from kl_audit.oracle.certified import evaluate
from kl_audit.quantities.vectors import find_vector

#: Relative error that a sound formulation may have, by width of the inputs: value, gradient norm.
VALUE_LIMIT = {64: 1e-3, 32: 1e-3, 16: 1e-2}
GRADIENT_LIMIT = 1e-2


@functools.cache
def cases(name, dtype, sizes):
    """Return [(case, value, gradient)]: the truth as floats."""
    q, fmt = find_vector(name), find_format(dtype)
    found = []
    for size in sizes:
        for case in q.cases(fmt, np.random.default_rng(0), size):
            real = {i.name: case.inputs[i.name] for i in q.inputs if i.kind == "real"}
            rest = {i.name: case.inputs[i.name] for i in q.inputs if i.kind != "real"}
            exact = evaluate(q.reference, real, q.differentiated, FP32, fmt, "norm", constants=rest)
            slope = exact.gradients[q.differentiated[0]]
            assert slope is not None, f"{case.name}: {exact.reasons}"
            found.append((case, float(exact.value.fractions()[0]), np.array(slope.fractions(), dtype=float)))
    return found


@dataclass
class Got:
    """One result against the truth."""

    case: object
    value: float
    gradient: np.ndarray
    value_error: float  #: relative; inf for what is not finite and should be, or the other way round
    gradient_error: float  #: of the norm; 0 where the truth is infinite and has no gradient
    cosine: float

    def fails(self, bits):
        return not (self.value_error <= VALUE_LIMIT[bits] and self.gradient_error <= GRADIENT_LIMIT)


def _value_error(got, truth, fmt):
    if abs(truth) > fmt.largest:
        truth = math.copysign(math.inf, truth)
    if not (math.isfinite(got) and math.isfinite(truth)):
        return 0.0 if got == truth else math.inf
    excess = max(0.0, abs(got - truth) - fmt.smallest_normal)  # a subnormal may be flushed
    return 0.0 if excess == 0 else excess / abs(truth) if truth else math.inf


def _gradient_error(got, truth, value, fmt):
    if not np.isfinite(got).all():
        return math.inf
    floor = math.sqrt(len(truth)) * (fmt.smallest if fmt.name == "float16" else fmt.smallest_normal)
    excess, norm = max(0.0, np.linalg.norm(got - truth) - floor), np.linalg.norm(truth)
    if norm > floor:
        return excess / norm
    return 0.0 if excess <= 2.0**-24 * abs(value) else math.inf  # a gradient that is 0 in the format


def columns(name, fmt, case):
    """Return the inputs of a case as arrays of a format."""
    kinds = {"real": fmt.cast, "mask": np.asarray, "index": lambda x: np.asarray(x, dtype=np.int64)}
    return [kinds[i.kind](case.inputs[i.name]) for i in find_vector(name).inputs]


def run(formulation, dtype, where="torch/eager", sizes=(2, 8, 64)):
    """Yield a Got for every case."""
    name, fmt = formulation.quantity, find_format(dtype)
    backend, mode = where.split("/")
    wrt = (0,) if BACKENDS[backend].differentiates else ()
    evaluator = BACKENDS[backend].array_evaluator(formulation.fn, mode, "cpu", wrt)
    for case, value, slope in cases(name, dtype, sizes):
        result, gradients = evaluator(*columns(name, fmt, case))
        assert result.shape == ()
        got = float(result)
        error, cosine = 0.0, 1.0
        gradient = gradients[0].astype(float) if gradients else slope
        if math.isfinite(value):
            error = _gradient_error(gradient, slope, value, fmt)
            norms = np.linalg.norm(gradient) * np.linalg.norm(slope)
            cosine = float(gradient @ slope / norms) if norms > 0 else float(not slope.any())
        yield Got(
            case, got, gradient, _value_error(got, value, find_format(result.dtype.name)), error, cosine
        )
