"""Certified arrays: settling, undefined gradients, zeros, and conversion to truths."""

from __future__ import annotations

import math
from fractions import Fraction

import flint
import mpmath
import numpy as np
import pytest
from oracle.mp_arrays import derivative, to_fraction, value

from kl_audit.errors import OracleError
from kl_audit.formats import BF16, FP16, FP32, FP64
from kl_audit.oracle import certified
from kl_audit.oracle.certified import evaluate, recompute
from kl_audit.oracle.exact import decimal
from kl_audit.quantities import QUANTITIES

each = pytest.mark.parametrize("fmt", [FP64, FP32, FP16, BF16], ids=lambda f: f.short)
either = pytest.mark.parametrize("by", ["balls", "intervals"])

#: What mpmath's finite differences at 80 digits are good for.
SLOPE_SLACK = Fraction(1, 10**50)


def entropy(o, x):
    p = o.softmax(x)
    return -o.sum(p * o.log_softmax(x))


def kl(o, x, y):
    lx, ly = o.log_softmax(x), o.log_softmax(y)
    return o.sum(o.exp(lx) * (lx - ly))


def kl_of_probabilities(o, x, y):
    p, q = o.softmax(x), o.softmax(y)
    return o.sum(o.xlogy(p, p / q))


def reverse_kl(o, x, y):
    return kl(o, y, x)


def jsd(o, x, y):
    p, q = o.softmax(x), o.softmax(y)
    m = (p + q) / 2
    return (o.sum(o.xlogy(p, p / m)) + o.sum(o.xlogy(q, q / m))) / 2


def top_k_kl(o, x, y, index):
    """The k entries given, and everything else lumped into one."""
    p, q = (o.take(o.softmax(v), index) for v in (x, y))
    tail_p, tail_q = 1 - o.sum(p), 1 - o.sum(q)
    return o.sum(o.xlogy(p, p / q)) + o.xlogy(tail_p, tail_p / tail_q)


def masked_mean(o, x, y, mask):
    return o.sum((o.exp(y - x) - (y - x) - 1) * mask) / o.sum(o.where(mask, 1 + 0 * x, 0))


FORMULAS = {
    "entropy": (entropy, "x", {}),
    "kl": (kl, "xy", {}),
    "kl of probabilities": (kl_of_probabilities, "xy", {}),
    "reverse kl": (reverse_kl, "xy", {}),
    "jsd": (jsd, "xy", {}),
    "top-k kl": (top_k_kl, "xy", {"index": [3, 0, 5]}),
    "masked mean": (masked_mean, "xy", {"mask": np.array([True, False, True, True, False, True, True])}),
    "log_softmax": (lambda o, x: o.log_softmax(x), "x", {}),
}


def logits(fmt, n=7, seed=0):
    rng = np.random.default_rng(seed)
    return {k: fmt.cast(rng.normal(0, 2, n)).astype(np.float64) for k in "xy"}


def total(output, i):
    """Return element i of an output and its error bound as Fractions."""
    s = output.truth.sum
    unit = Fraction(2) ** int(s.scale[i])
    return (Fraction(float(s.hi[i])) + Fraction(float(s.lo[i]))) * unit, Fraction(float(s.err[i])) * unit


@either
@each
@pytest.mark.parametrize("name", FORMULAS)
def test_values_and_gradients_agree_with_mpmath(name, fmt, by):
    """Values and gradients of the usual formulas are within their bound of mpmath's, to 104 bits."""
    fn, names, constants = FORMULAS[name]
    inputs = {k: v for k, v in logits(fmt).items() if k in names}
    found = evaluate(fn, inputs, tuple(names), fmt, by=by, constants=constants)
    want = np.ravel(value(fn, inputs, constants))
    assert found.value.shape == value(fn, inputs, constants).shape
    for i, truth in enumerate(want):
        got, err = total(found.value, i)
        assert abs(got - to_fraction(truth)) <= err + Fraction(1, 10**70)
        assert err <= abs(got) / 2**102
    for k in names:
        assert found.gradients[k].shape == inputs[k].shape
        for i in range(len(inputs[k])):
            got, err = total(found.gradients[k], i)
            truth = to_fraction(derivative(fn, inputs, k, i, constants))
            assert abs(got - truth) <= err + SLOPE_SLACK
            assert err <= abs(got) / 2**102
    assert not found.value.truth.open.any()


@pytest.mark.parametrize("name", FORMULAS)
def test_recomputed_elements_agree(name):
    """Intervals give the same thirty digits as balls, of values and of gradients."""
    fn, names, constants = FORMULAS[name]
    inputs = {k: v for k, v in logits(FP32, seed=4).items() if k in names}
    found = evaluate(fn, inputs, tuple(names), FP32, constants=constants)
    n = math.prod(found.value.shape)
    again = recompute(fn, inputs, range(n), FP32, constants=constants)
    assert [decimal(v) for v in again] == [decimal(v) for v in found.value.fractions()]
    for k in names:
        again = recompute(fn, inputs, [5, 2], FP32, wrt=k, constants=constants)
        assert [decimal(v) for v in again] == [decimal(v) for v in found.gradients[k].fractions([5, 2])]


def test_printed_digits_are_right():
    """Thirty printed digits are those of mpmath."""
    inputs = {"x": np.array([0.5, -1.25, 2.0])}
    found = evaluate(entropy, inputs, ("x",), BF16)
    with mpmath.workdps(60):
        want = mpmath.nstr(value(entropy, inputs)[()], 30)
    assert decimal(found.value.fractions()[0]) == want


@either
@each
def test_identical_distributions_are_exactly_zero(fmt, by):
    """KL(p||p), and its gradients, are enclosures of zero: zero for the format, in every respect."""
    x = logits(fmt, 20)["x"]
    found = evaluate(kl, {"x": x, "y": x}, ("x", "y"), fmt, by=by)
    for output in (found.value, *found.gradients.values()):
        assert (output.truth.sum.hi == 0).all()
        assert output.truth.rounds_to_zero.all()
        assert not output.truth.open.any()
        assert set(output.fractions()) == {Fraction(0)}
        for i in range(len(output.truth.sum.hi)):
            assert total(output, i)[1] <= Fraction(fmt.smallest) / 2**40
        ulps, relative = output.truth.errors(np.zeros(len(output.truth.sum.hi)))
        assert (ulps == 0).all()
        assert (relative == 0).all()
    assert recompute(kl, {"x": x, "y": x}, [0], fmt) == [0]


def test_nearly_identical_distributions_are_not_zero():
    """A KL divergence far below the format's u is still told from zero."""
    x = logits(FP64, 6)["x"]
    y = x + np.array([2.0**-40, 0, 0, 0, 0, 0])
    got, err = total(evaluate(kl, {"x": x, "y": y}, (), FP64).value, 0)
    with mpmath.workdps(80):
        assert abs(got - to_fraction(value(kl, {"x": x, "y": y}))) <= err + Fraction(1, 10**70)
    assert 0 < got < Fraction(1, 2**75)


@either
def test_a_kink_leaves_the_value(by):
    """At a kink the gradient is undefined, with a reason, and the value and other gradients stay."""
    fn = lambda o, x, y: o.sum(o.maximum(x, 1.0)) + o.sum(y * y)  # noqa: E731
    inputs = {"x": np.array([0.5, 1.0, 2.0]), "y": np.array([3.0])}
    found = evaluate(fn, inputs, ("x", "y"), FP32, by=by)
    assert found.value.fractions() == [13]
    assert found.gradients["x"] is None
    assert "kink" in found.reasons["x"]
    assert found.gradients["y"].fractions() == [6]
    assert list(found.reasons) == ["x"]
    assert all(math.isnan(v) for v in recompute(fn, inputs, [0, 1], FP32, wrt="x"))


@either
def test_undefined_and_infinite_elements(by):
    """Undefined elements are marked in the truth, infinite ones keep their sign."""
    x = np.array([0.0, -1.0, 4.0, math.inf])
    found = evaluate(lambda o, x: o.log(x), {"x": x}, ("x",), FP32, by=by)
    truth = found.value.truth
    assert truth.undefined.tolist() == [False, True, False, False]
    assert truth.infinite.tolist() == [True, False, False, True]
    assert truth.sum.hi[[0, 3]].tolist() == [-math.inf, math.inf]
    assert found.gradients["x"].truth.sum.hi[[0, 2, 3]].tolist() == [math.inf, 0.25, 0]
    assert found.value.fractions([0]) == [-math.inf]
    assert math.isnan(recompute(lambda o, x: o.log(x), {"x": x}, [1], FP32)[0])


@either
def test_beyond_every_format(by):
    """Far overflow is infinite, far underflow tiny but not zero, also next to ordinary elements."""
    x = np.array([1e4, 3e5, -1e4, -3e5, 0.5, -800.0])
    found = evaluate(lambda o, x: -o.exp(x), {"x": x}, (), FP64, by=by)
    truth = found.value.truth
    assert truth.infinite.tolist() == [True, True, False, False, False, False]
    assert truth.rounds_to_zero.tolist() == [False, False, True, True, False, True]
    assert (truth.sum.hi < 0).all()
    for i in (0, 2, 5):
        with mpmath.workdps(60):
            want = to_fraction(-mpmath.exp(mpmath.mpf(float(x[i]))))
        if i == 0:
            assert abs(found.value.fractions([0])[0] / want - 1) < Fraction(1, 2**110)
        else:
            got, err = total(found.value, i)
            assert abs(got - want) <= err <= abs(want) / 2**100


@pytest.mark.parametrize("fmt", [FP64, FP16], ids=lambda f: f.short)
def test_values_at_the_limit_of_a_binade_are_settled(fmt):
    """exp(log(x)) is an enclosure of a power of two that no precision tells from its neighbours."""
    x = np.array([2.0, 0.25, 1024.0, 2.0**-10, 3.0])
    truth = evaluate(lambda o, x: -o.exp(o.log(x)), {"x": x}, (), fmt).value.truth
    assert not truth.open.any()
    assert truth.exponent.tolist() == [1, -2, 10, -10, 1]
    assert (truth.sum.hi * 2.0**truth.sum.scale == -x).all()


def test_value_at_the_overflow_threshold_is_settled():
    """An enclosure of exactly the overflow threshold counts as that: infinite."""
    x = np.array([65520.0, 65519.0])
    truth = evaluate(lambda o, x: o.exp(o.log(x)), {"x": x}, (), FP16).value.truth
    assert truth.infinite.tolist() == [True, False]
    assert not truth.open.any()


def test_norm_settles_zeros_without_more_bits():
    """Among elements of ordinary size a cancelled one needs no precision beyond that of the norm."""

    def fn(o, x):  # the derivative with respect to x[0] is e**x - e**x
        first = o.take(x, 0)
        return o.sum(o.exp(x)) - o.exp(first + o.log(o.number(1) + 0 * first))

    inputs = {"x": np.array([0.3, 0.5, 2.0])}
    norm = evaluate(fn, inputs, ("x",), FP64, scale="norm")
    element = evaluate(fn, inputs, ("x",), FP64)
    assert norm.precision < element.precision
    got, err = total(norm.gradients["x"], 0)
    assert abs(got) <= err
    assert 0 < err <= Fraction(1, 2**90)  # no claim to be exactly zero
    assert not norm.gradients["x"].truth.open.any()
    assert element.gradients["x"].truth.sum.hi[0] == 0


def test_separate_format_for_gradients():
    """The gradients may be judged in another format than the value."""
    found = evaluate(kl, logits(FP16), ("x",), FP16, gradient_fmt=FP64)
    assert found.value.truth.fmt is FP16
    assert found.gradients["x"].truth.fmt is FP64


def test_what_is_never_settled_is_refused(monkeypatch):
    """A branch on an enclosure of zero, or an element that stays open, is refused with its place."""
    monkeypatch.setattr(certified, "MAX_PRECISION", 700)
    x = np.array([0.3, 0.7])
    with pytest.raises(OracleError, match="a branch"):
        evaluate(lambda o, x: o.where(o.exp(x) - o.exp(x) > 0, x, -x), {"x": x}, (), FP32)
    with pytest.raises(OracleError, match="element 1 of the value"):
        evaluate(lambda o, x: o.where(x > 0.5, o.exp(x) - o.exp(x), x), {"x": x}, (), FP64)
    with pytest.raises(OracleError, match="element 0 of the gradient with respect to 'x'"):
        evaluate(lambda o, x: o.exp(x) - o.exp(-o.log(o.exp(-x))), {"x": x}, ("x",), FP64)


def test_small_inputs_are_resolved():
    """k3 and its derivative on an array, down to the smallest float64, are as the scalar oracle has them."""
    d = np.array([5e-324, -1e-300, 1e-30, -0.25, 3.0, 0.0])
    found = evaluate(lambda o, d: o.exp(d) - d - 1, {"d": d}, ("d",), FP64)
    for i, (got, x) in enumerate(zip(found.value.fractions(), d.tolist(), strict=True)):
        want = QUANTITIES["k3"].value.exact((x,), FP64)
        assert abs(got - want) <= abs(want) / 2**93 + Fraction(FP64.smallest) / 2**40
        slope = QUANTITIES["k3"].gradient.exact((x,), FP64)
        assert abs(total(found.gradients["d"], i)[0] - slope) <= abs(slope) / 2**93


def test_precision_of_flint_is_restored():
    """The working precision of flint is as before, also after a refusal."""
    before = flint.ctx.prec
    evaluate(kl, logits(FP64), ("x",), FP64)
    recompute(kl, logits(FP64), [0], FP64)
    with pytest.raises(OracleError):
        evaluate(lambda o, x, y: o.log(o.exp(x) - o.exp(x)), logits(FP64), (), FP64)
    assert flint.ctx.prec == before


def test_masked_vocabulary():
    """Masked entries have the gradient 0, and the others are as without them."""
    x = np.array([0.5, -math.inf, -1.25, 2.0])
    fn = lambda o, x: o.logsumexp(x) - o.take(x, 0)  # noqa: E731
    found = evaluate(fn, {"x": x}, ("x",), FP32)
    plain = evaluate(fn, {"x": x[[0, 2, 3]]}, ("x",), FP32)
    kept = found.gradients["x"].fractions([0, 2, 3])
    assert [decimal(v) for v in kept] == [decimal(v) for v in plain.gradients["x"].fractions()]
    assert total(found.gradients["x"], 1) == (0, 0)


@pytest.mark.slow
def test_a_whole_vocabulary():
    """KL over 150,000 entries: the divergence and both gradients, whose sums are zero."""
    rng = np.random.default_rng(0)
    inputs = {k: FP32.cast(rng.normal(0, 3, 150_000)).astype(np.float64) for k in "xy"}
    found = evaluate(kl, inputs, ("x", "y"), FP32, scale="norm")
    assert not found.value.truth.open.any()
    for k in "xy":
        parts = found.gradients[k].fractions()
        assert abs(sum(parts)) <= sum(abs(p) for p in parts) / 2**100


@either
def test_a_branch_is_decided_with_more_bits(by):
    """A branch on e**x - 1 > x is decided for a tiny x, where the first precision leaves it open."""
    x = np.array([2.0**-500, 0.5])
    fn = lambda o, x: o.where(o.exp(x) - 1 > x, 3 * x, -x)  # noqa: E731
    found = evaluate(fn, {"x": x}, ("x",), FP64, by=by)
    assert found.value.fractions() == [3 * Fraction(2) ** -500, Fraction(3, 2)]
    assert found.gradients["x"].fractions() == [3, 3]
    assert found.precision > 500


@either
def test_arrays_of_two_axes_are_flattened(by):
    """An output of several axes is flattened in C order, and its shape kept."""
    x = np.random.default_rng(1).normal(size=(3, 4))
    fn = lambda o, x: o.take(o.log_softmax(x), [2, 0])  # noqa: E731
    found = evaluate(fn, {"x": x}, ("x",), FP32, by=by)
    assert found.value.shape == (3, 2)
    assert found.gradients["x"].shape == (3, 4)
    for i, want in enumerate(np.ravel(value(fn, {"x": x}))):
        got, err = total(found.value, i)
        assert abs(got - to_fraction(want)) <= err + Fraction(1, 10**70)
    got, err = total(found.gradients["x"], 7)
    assert abs(got - to_fraction(derivative(fn, {"x": x}, "x", 7))) <= err + SLOPE_SLACK
