"""The formulations: sound ones hold on every case, the others fail on one, and the reported figures."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from vectors.harness import find_vector, run

from kl_audit.backends import BACKENDS
from kl_audit.backends.base import CandidateError
from kl_audit.formats import BF16, FP16, FP32, find_format
from kl_audit.formulations.vectors import VECTOR_FORMULATIONS, vector_formulations_of
from kl_audit.quantities.vectors import VECTORS

SOUND = [f for f in VECTOR_FORMULATIONS if f.sound and f.quantity != "kl-topk-tail"]
STOCK = [f for f in VECTOR_FORMULATIONS if not f.sound and f.quantity != "kl-topk-tail"]
DTYPES = pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])


def label(f):
    return f"{f.quantity}-{f.name}"


def evaluate(quantity, name, *inputs, where="torch/eager", wrt=()):
    fn = next(f.fn for f in vector_formulations_of(quantity) if f.name == name)
    backend, mode = where.split("/")
    value, gradients = BACKENDS[backend].array_evaluator(fn, mode, "cpu", wrt)(*inputs)
    return float(value), [g.astype(float) for g in gradients]


def check(results, fmt, q):
    for got in results:
        assert not got.fails(fmt.bits), f"{got.case.name}: {got.value_error}, {got.gradient_error}"
        low, high = q.lower(got.case), q.upper(got.case)
        assert low is None or got.value >= low, got.case.name
        assert high is None or got.value <= high * (1 + 1e-6), got.case.name
        if q.zero_on_identical and got.case.tag == "identical":
            assert got.value == 0, got.case.name
            if q.name in ("kl-forward", "kl-reverse", "jsd"):
                assert not got.gradient.any(), got.case.name


@DTYPES
@pytest.mark.parametrize("f", SOUND, ids=label)
def test_a_sound_formulation_holds_on_every_case(f, dtype):
    """Value, gradient, bounds and exact zeros, in torch, for every default size but the largest."""
    q = find_vector(f.quantity)
    check(run(f, dtype, sizes=q.sizes[:-1]), find_format(dtype), q)


@pytest.mark.slow
@DTYPES
@pytest.mark.parametrize("f", SOUND, ids=label)
def test_a_sound_formulation_holds_at_the_largest_size(f, dtype):
    """The same at the largest default size."""
    q = find_vector(f.quantity)
    check(run(f, dtype, sizes=q.sizes[-1:]), find_format(dtype), q)


@pytest.mark.parametrize("f", SOUND, ids=label)
def test_a_sound_formulation_holds_under_jit(f):
    """The same when JAX compiles the expression as a whole."""
    check(run(f, "fp32", "jax/jit", (8,)), FP32, find_vector(f.quantity))


@pytest.mark.parametrize("f", SOUND, ids=label)
def test_a_sound_formulation_has_the_right_value_in_numpy(f):
    """The same in NumPy, which has no gradients, from bfloat16 inputs."""
    check(run(f, "bf16", "numpy/eager", (8, 64)), BF16, find_vector(f.quantity))


@pytest.mark.parametrize("f", STOCK, ids=label)
def test_every_other_formulation_fails_somewhere(f):
    """A formulation without the mark fails on a case, in torch, or in NumPy where sums round every step."""
    sizes = find_vector(f.quantity).sizes
    sizes = sizes if f.quantity.startswith(("masked", "sequence")) else sizes[:-1]
    for where in ("torch/eager", "numpy/eager"):
        for dtype in ("bf16", "fp32", "fp16"):
            if any(got.fails(find_format(dtype).bits) for got in run(f, dtype, where, sizes)):
                return
    pytest.fail("it passed everywhere: mark it sound, or add the case that it fails")


def test_every_quantity_has_stock_and_sound_formulations():
    """Names are unique within a quantity, and the derivation is in the module's docstring."""
    for name in VECTORS:
        found = vector_formulations_of(name)
        assert len({f.name for f in found}) == len(found)
        assert any(f.sound for f in found)
        assert any(not f.sound for f in found)
    for f in VECTOR_FORMULATIONS:
        assert f.quantity in VECTORS
        assert len(f.derivation) > 100


def test_a_mean_of_logs_is_no_mixture():
    """TRL issue 2202: S = (1e-6, 1 - 1e-6), T = (.999, .001): 5.175381 instead of 0.6891856462 (<= log 2)."""
    s, t = np.log([1e-6, 1 - 1e-6]), np.log([0.999, 0.001])
    assert evaluate("jsd", "mean-of-logs", s, t)[0] == pytest.approx(5.175381, abs=1e-6)
    value, _ = evaluate("jsd", "convex", s, t)
    assert value == pytest.approx(0.6891856462, abs=1e-10)
    assert value <= math.log(2)


def test_a_mixture_in_probability_space_underflows():
    """Liger-Kernel issue 1453: log-probabilities (0, -110) on both sides give NaN, where the truth is 0."""
    z = np.float32([0, -110])
    assert math.isnan(evaluate("jsd", "naive", z, z)[0])
    value, gradients = evaluate("jsd", "convex", z, z, wrt=(0, 1))
    assert value == 0
    assert not np.any(gradients)


def test_the_entropy_of_masked_logits_needs_its_gradient_repaired_too():
    """TRL issue 7221: (0, 0, -inf) is NaN; where() on the product repairs the value, not the gradient."""
    z = np.float32([0, 0, -np.inf])
    assert math.isnan(evaluate("entropy", "naive", z)[0])
    value, (gradient,) = evaluate("entropy", "where-safe", z, wrt=(0,))
    assert value == pytest.approx(math.log(2))
    assert np.isnan(gradient).any()
    value, (gradient,) = evaluate("entropy", "shifted-terms", z, wrt=(0,))
    assert value == pytest.approx(math.log(2))
    assert not gradient.any()
    assert math.isnan(evaluate("entropy", "naive", FP16.cast([65504, -65504]))[0])
    assert evaluate("entropy", "shifted-terms", FP16.cast([65504, -65504]))[0] == 0


@pytest.mark.parametrize(("fmt", "stall"), [(BF16, 256), (FP16, 2048)], ids=str)
def test_a_running_sum_of_ones_stops_at_two_to_the_precision(fmt, stall):
    """prime-rl pull request 568, candle pull request 3718: 256 in bfloat16, 2048 in float16."""
    case = VECTORS["sequence-sum"].flat(fmt, 2500)
    ones = fmt.cast(case.inputs["values"])
    assert evaluate("sequence-sum", "sequential", ones, where="numpy/eager")[0] == stall
    assert evaluate("sequence-sum", "upcast", ones, where="numpy/eager")[0] == 2500


def test_an_empty_row_and_masked_infinities():
    """NeMo-RL issue 158 and pull request 4154: 0/0, and inf times 0, are NaN; selected first they are 0."""
    empty = np.zeros(2, dtype=bool)
    x = np.float32([1, 2])
    assert math.isnan(evaluate("masked-mean", "divide-by-count", x, empty)[0])
    assert evaluate("masked-mean", "where-upcast", x, empty)[0] == 0
    x, mask = np.float32([1, np.inf]), np.array([True, False])
    assert math.isnan(evaluate("masked-mean", "multiply-after", x, mask)[0])
    value, (gradient,) = evaluate("masked-mean", "where-upcast", x, mask, wrt=(0,))
    assert (value, list(gradient)) == (1, [1, 0])


def test_a_gradient_reaches_both_rows_of_a_divergence():
    """The teacher's gradient of KL(student || teacher) is t - s, though it is not audited."""
    s, t = np.array([0.5, -1.0, 2.0]), np.array([0.25, 0.5, -1.0])
    _, (_, gradient) = evaluate("kl-reverse", "centred", s, t, wrt=(0, 1))
    with mpmath.mp.workdps(40):
        p, q = ([mpmath.exp(float(x)) for x in z] for z in (s, t))
        expected = [float(b / sum(q) - a / sum(p)) for a, b in zip(p, q, strict=True)]
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


def test_float64_stays_float64():
    """Sound formulations keep float64 and its accuracy: a KL of 5e-19 to 1e-6 of itself."""
    z = np.array([0.0, 1.0, 2.0])
    noisy = z + np.array([1e-9, 0.0, -1e-9])
    value, _ = evaluate("kl-forward", "centred", noisy, z)
    with mpmath.mp.workdps(60):
        p, q = ([mpmath.exp(mpmath.mpf(float(x))) for x in r] for r in (z, noisy))
        terms = (a / sum(p) * mpmath.log(a / sum(p) / (b / sum(q))) for a, b in zip(p, q, strict=True))
        expected = float(sum(terms))
    assert value == pytest.approx(expected, rel=1e-6)


def test_a_sequence_too_long_to_unroll_is_refused():
    """Beyond 4096 tokens the one-by-one forms raise and say why."""
    with pytest.raises(CandidateError, match="5000 is too long to unroll"):
        evaluate("sequence-sum", "sequential", np.ones(5000, dtype=np.float32))
