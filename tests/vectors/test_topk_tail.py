"""Forward KL over the top-k with a tail: the reported figures, and a battery that tells right from wrong."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from vectors.harness import find_vector, run
from vectors.mp_reference import DIGITS, kl_topk_tail, selected_log_prob, softmax

from kl_audit.backends import BACKENDS
from kl_audit.formats import BF16, FP32
from kl_audit.formulations.vectors import vector_formulations_of
from kl_audit.formulations.vectors.topk_tail_sum import complement

NAME = "kl-topk-tail"
BY_NAME = {f.name: f for f in vector_formulations_of(NAME)}
RIGHT = ["tail-sum", "tail-sum-chunked-3", "tail-sum-chunked-64"]
WRONG = ["rounded", "lse-subtract", "library", "chunked-3", "chunked-64"]
DTYPES = ["fp32", "bf16", "fp16"]

LOGITS, IDS = [0.0, 0.0, -9.0, -9.0], [0, 1]
TEACHER = np.float32([0.45, 0.45])  # kept in float32, as in the report


def differentiated(name, dtype=BF16, logits=LOGITS, probs=TEACHER, ids=IDS):
    evaluate = BACKENDS["torch"].array_evaluator(BY_NAME[name].fn, "eager", "cpu", (0,))
    value, (gradient,) = evaluate(dtype.cast(logits), np.float32(probs), np.int64(ids))
    return float(value), gradient.astype(float)


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.fixture(scope="module")
def truth():
    with mp.workdps(DIGITS):
        value, slope = kl_topk_tail(LOGITS, TEACHER, IDS)
        return float(value), np.array([float(x) for x in slope])


def test_the_true_figures_of_the_report(truth):
    """Student mass 0.9998766 and gradient +-0.0499383 for logits (0, 0, -9, -9) and teacher 0.45, 0.45."""
    with mp.workdps(DIGITS):
        mass = sum(softmax(LOGITS)[:2])
        assert float(mass) == pytest.approx(0.9998766, abs=5e-8)
        assert float(mass) == pytest.approx(float(1 / (1 + mpmath.exp(-9))), rel=1e-15)
    np.testing.assert_allclose(truth[1], [0.0499383, 0.0499383, -0.0499383, -0.0499383], atol=1e-7)


def test_rounded_log_probabilities_have_a_mass_above_one():
    """About log(1/2) rounds to -0.69140625 in bfloat16; the float32 sum of two exponentials is 1.0017425."""
    with mp.workdps(DIGITS):
        log_s, _ = selected_log_prob(LOGITS, 0)
        held = float(BF16.cast(float(log_s)))
        assert held == -0.69140625
        exact = float(2 * mpmath.exp(mpf(held)))

    def mass(xp, z):
        log_s = xp.cast(xp.take(xp.log_softmax(xp.cast(z, "float32")), IDS), "bfloat16")
        return xp.sum(xp.exp(xp.cast(log_s, "float32")))

    got, _ = BACKENDS["torch"].array_evaluator(mass, "eager", "cpu")(BF16.cast(LOGITS))
    assert f"{float(got):.8g}" == "1.0017425"
    assert float(got) == pytest.approx(exact, abs=2.0**-23)


def test_the_rounded_form_points_the_other_way(truth):
    """Its gradient is about (-5.6e-05, -5.6e-05, 5.5e-05, 5.5e-05): cosine -0.9999976877 with the truth."""
    _, gradient = differentiated("rounded")
    np.testing.assert_allclose(gradient, [-5.6e-05, -5.6e-05, 5.5e-05, 5.5e-05], rtol=0.01)
    assert cosine(gradient, truth[1]) == pytest.approx(-0.9999976877, abs=1e-10)


@pytest.mark.parametrize("name", ["library", *RIGHT])
def test_kept_in_float32_the_gradient_is_right(name, truth):
    """(0.0500, 0.0500, -0.0498, -0.0498) in bfloat16, and in float32 the truth to 1e-5."""
    value, gradient = differentiated(name)
    np.testing.assert_allclose(np.abs(gradient), [0.0500, 0.0500, 0.0499, 0.0499], rtol=3e-3)
    assert cosine(gradient, truth[1]) >= 0.999997
    assert value == pytest.approx(truth[0], rel=1e-3 if name == "library" else 1e-5)
    _, gradient = differentiated(name, FP32)
    np.testing.assert_allclose(gradient, truth[1], rtol=1e-3 if name == "library" else 1e-5)


def test_a_subtracted_logsumexp_loses_the_tail_of_64_51():
    """The selected log-probability is -2.2603e-06; minus logsumexp it is 0, and the tail has no gradient."""
    with mp.workdps(DIGITS):
        log_s, slope = selected_log_prob([64.0, 51.0], 0)
        assert float(log_s) == pytest.approx(-2.2603e-06, abs=5e-11)
    selected = {f.name: f.fn for f in vector_formulations_of("selected-log-prob")}
    got = {}
    for name in ("lse-subtract", "others"):
        evaluate = BACKENDS["torch"].array_evaluator(selected[name], "eager", "cpu", (0,))
        value, (gradient,) = evaluate(BF16.cast([64.0, 51.0]), np.array(0))
        got[name] = float(value), gradient.astype(float)
    assert got["lse-subtract"][0] == 0.0
    assert got["others"][0] == pytest.approx(float(log_s), rel=1e-6)
    np.testing.assert_allclose(got["others"][1], [float(x) for x in slope], rtol=4e-3)

    with mp.workdps(DIGITS):
        loss, pull = kl_topk_tail([64.0, 51.0], [0.875], [0])
    for name in ("lse-subtract", "chunked-3", "chunked-64"):
        value, gradient = differentiated(name, logits=[64.0, 51.0], probs=[0.875], ids=[0])
        assert abs(value - float(loss)) > 0.05 * float(loss)
        assert np.abs(gradient).max() < 1e-5
    for name in RIGHT:
        value, gradient = differentiated(name, logits=[64.0, 51.0], probs=[0.875], ids=[0])
        assert value == pytest.approx(float(loss), rel=1e-5)
        np.testing.assert_allclose(gradient, [float(x) for x in pull], rtol=4e-3)


def battery(name, where="torch/eager", sizes=(2, 4, 64), dtypes=DTYPES):
    return [(d, got) for d in dtypes for got in run(BY_NAME[name], d, where, sizes)]


@pytest.mark.parametrize("sizes", [(2, 4, 64), pytest.param((1000,), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_form_passes_the_battery(name, sizes):
    """At least 60 loss and gradient cases: every loss to 1e-5, every gradient with cosine >= 0.999997."""
    results = battery(name, sizes=sizes)
    assert len(results) >= 60
    assert {d for d, _ in results} == set(DTYPES)
    for dtype, got in results:
        assert got.value_error <= 1e-5, (dtype, got.case.name)
        assert got.gradient_error <= (1e-5 if dtype == "fp32" else 5e-3), (dtype, got.case.name)
    # 16-bit gradients are rounded once more, to the dtype of the logits
    assert min(got.cosine for d, got in results if d == "fp32") >= 0.9999999
    assert min(got.cosine for d, got in results if d == "bf16" and got.gradient_error > 0) >= 0.999997


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_form_fails_the_battery(name):
    """Each fails in every dtype, and turns at least one gradient by more than 1 % or loses it."""
    for dtype in DTYPES:
        results = battery(name, dtypes=[dtype])
        failed = [got for _, got in results if got.fails(32)]
        assert failed, dtype
        assert max(got.gradient_error for got in failed) > 0.01


def test_under_jit_the_right_form_passes_too():
    """The compiled expression in JAX has the same accuracy (float32, V=4)."""
    for _, got in battery("tail-sum", "jax/jit", (4,), ["fp32"]):
        assert got.value_error <= 1e-5, got.case.name
        assert got.gradient_error <= 1e-5, got.case.name


def test_chunks_do_not_change_the_result():
    """Whole row, chunks of 3 and chunks of 64 agree to a few u."""
    rows = [[got.value for _, got in battery(n, sizes=(64,), dtypes=["fp32"])] for n in RIGHT]
    np.testing.assert_allclose(rows[1], rows[0], rtol=2e-6)
    np.testing.assert_allclose(rows[2], rows[0], rtol=2e-6)


@pytest.mark.parametrize("seed", range(20))
def test_the_complement_of_a_sum_is_right_to_an_ulp(seed):
    """1 - sum t is right to one ulp of itself, also where the sum is within 1e-7 of 1."""
    rng = np.random.default_rng(seed)
    t = np.float32(rng.dirichlet(np.ones(1 + 7 * seed)))
    t[0] = max(np.float32(0), t[0] - np.float32(10.0 ** -(seed / 3)))
    xp, (array,) = BACKENDS["numpy"].arrays((t,))
    exact = 1 - sum(Fraction(float(x)) for x in t)
    assert abs(Fraction(float(complement(xp, array))) - exact) <= abs(exact) * Fraction(1, 2**22)


def test_the_complement_of_a_whole_is_exactly_zero():
    """Probabilities that sum to 1 as stored leave no tail."""
    xp, (array,) = BACKENDS["numpy"].arrays((np.float32([2**-24] * 4 + [1 - 2**-22]),))
    assert float(complement(xp, array)) == 0.0


def test_ids_and_teacher_zeros_beyond_the_support_are_ignored():
    """A token of teacher weight 0 with a logit of -inf contributes 0 and has gradient 0."""
    q = find_vector(NAME)
    cases = [c for c in q.cases(FP32, np.random.default_rng(0), 64) if "weight 0 at -inf" in c.name]
    assert cases
    for name in RIGHT:
        inputs = cases[0].inputs
        value, gradient = differentiated(
            name, FP32, inputs["student"], inputs["teacher_probs"], inputs["ids"]
        )
        assert np.isfinite(value)
        assert gradient[0] == 0
