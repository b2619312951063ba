"""The exact references against mpmath that is written another way."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from vectors.harness import cases
from vectors.mp_reference import DIGITS, kl_topk_tail, numbers, reference

from kl_audit.formats import FP64
from kl_audit.oracle.certified import evaluate
from kl_audit.quantities.vectors import VECTORS, find_vector

SIZES = {"kl-topk-tail": (2, 4, 16)}


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", VECTORS)
def test_value_and_gradient_agree_with_mpmath(name, dtype):
    """Every case of the small sizes has the value and the gradient of the formulas in probabilities."""
    for case, value, gradient in cases(name, dtype, SIZES.get(name, (2, 8))):
        expected, slope = reference(name, case.inputs)
        if expected in (mpmath.inf, -mpmath.inf):
            assert value == float(expected), case.name
            continue
        # below float32's subnormals the certified value may be reported as 0
        assert value == pytest.approx(float(expected), rel=1e-14, abs=2.0**-180), case.name
        if slope is not None:
            scale = max(abs(float(x)) for x in slope)
            # the truth is certified to 2^-(p+40) of the largest element, or of the format's smallest number
            np.testing.assert_allclose(
                gradient, [float(x) for x in slope], rtol=0, atol=1e-14 * scale + 2.0**-60, err_msg=case.name
            )


def test_the_gradient_of_the_topk_loss_is_its_numerical_derivative():
    """The tape agrees with mpmath's difference quotients on both sides of the floor."""
    q = find_vector("kl-topk-tail")
    ids = np.array([0, 2])
    for student in (np.array([0.5, -1.0, 1.25, 0.0]), np.array([9.0, -9.0, 8.0, -8.5])):
        probs = np.array([0.5, 0.375])
        inputs = {"student": student, "teacher_probs": probs}
        got = evaluate(q.reference, inputs, ["student"], FP64, constants={"ids": ids})
        with mp.workdps(DIGITS):
            for k, slope in enumerate(got.gradients["student"].fractions()):

                def loss(x, k=k, student=student, probs=probs):
                    z = numbers(student)
                    z[k] = x
                    return _loss(z, probs, ids)

                numeric = mp.diff(loss, mpf(float(student[k])), h=mpf(10) ** -20)
                assert float(slope) == pytest.approx(float(numeric), rel=1e-12)


def _loss(z, probs, ids):
    weights = [mpmath.exp(x) for x in z]
    s = [w / sum(weights) for w in weights]
    tail = 1 - sum(numbers(probs))
    mass = max(1 - sum(s[i] for i in ids), mpf(1e-6))
    top = sum(mpf(float(t)) * mpmath.log(mpf(float(t)) / s[i]) for t, i in zip(probs, ids, strict=True))
    return top + tail * mpmath.log(tail / mass)


def test_the_teachers_side_is_not_differentiated():
    """Only the trained side of a quantity is audited for its gradient."""
    both = {name: q.differentiated for name, q in VECTORS.items() if len(q.inputs) > 1}
    assert both["kl-forward"] == both["kl-reverse"] == both["jsd"] == both["kl-topk-tail"] == ("student",)
    assert both["sequence-ratio"] == ("policy",)
    assert both["masked-mean"] == ("values",)


def test_truncated_kl_of_the_report_becomes_a_divergence_with_its_tail():
    """verl issue 7856: p = (.5, .3, .2), q = (.6, .35, .05), k = 2 has 0.1398528899 with the tail."""
    with mp.workdps(30):
        z = [float(mpmath.log(x)) for x in (0.6, 0.35, 0.05)]
        value, _ = kl_topk_tail(z, [0.5, 0.3], [0, 1])
        assert float(value) == pytest.approx(0.1398528899, abs=1e-9)
    inputs = {"student": np.array(z), "teacher_probs": np.array([0.5, 0.3])}
    q = find_vector("kl-topk-tail")
    got = evaluate(q.reference, inputs, [], FP64, constants={"ids": np.array([0, 1])})
    assert float(got.value.fractions()[0]) == pytest.approx(0.1398528899, abs=1e-9)
