"""Exact arrays: every operation and its derivative against mpmath, by balls and by intervals."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import flint
import mpmath
import numpy as np
import pytest
from oracle.mp_arrays import MpOps, derivative, ends, is_within, value

from kl_audit.errors import UsageError
from kl_audit.oracle import elementwise
from kl_audit.oracle.arrays import Array, ArrayOps, gradient
from kl_audit.oracle.balls import BallOps
from kl_audit.oracle.exact import IntervalOps, Undecided, Undefined

PRECISION = 200
INF, NAN = math.inf, math.nan
#: What 80 digits of mpmath, and its finite differences, are good for.
VALUE_SLACK = Fraction(1, 10**70)
SLOPE_SLACK = Fraction(1, 10**45)

KINDS = {"balls": lambda: ArrayOps(BallOps()), "intervals": lambda: ArrayOps(IntervalOps(PRECISION))}


@pytest.fixture(autouse=True)
def _precision():
    before = flint.ctx.prec
    flint.ctx.prec = PRECISION
    yield
    flint.ctx.prec = before


@pytest.fixture(params=KINDS)
def ops(request):
    return KINDS[request.param]()


@pytest.fixture
def balls():
    return KINDS["balls"]()


def check(ops, fn, inputs, constants=None):
    """Compare value and every derivative of fn with mpmath's; the enclosures have to be narrow."""
    leaves = {k: ops.array(x) for k, x in inputs.items()}
    out = ops.lift(fn(ops, **leaves, **(constants or {})))
    want = value(fn, inputs, constants)
    assert out.shape == want.shape
    for got, truth in zip(np.ravel(out.values), np.ravel(want), strict=True):
        assert is_within(truth, got, VALUE_SLACK), (got, truth)
        assert ends(got)[1] - ends(got)[0] <= Fraction(1, 2**150) * (1 + abs(ends(got)[1]))
    for name, slopes in zip(leaves, gradient(out, list(leaves.values())), strict=True):
        assert slopes.shape == np.shape(inputs[name])
        for i, got in enumerate(np.ravel(slopes)):
            truth = derivative(fn, inputs, name, i, constants)
            assert is_within(truth, got, SLOPE_SLACK), (name, i, got, truth)
            assert ends(got)[1] - ends(got)[0] <= Fraction(1, 2**140) * (1 + abs(ends(got)[1]))


def weigh(x):
    """Make the cotangents of an array differ, so that mixed-up derivatives show."""
    weights = np.reshape(np.arange(1, math.prod(x.shape) + 1), x.shape)
    return x * (weights * 0.75 - 2)


POSITIVE = np.array([0.3, 1.7, 2.5, 1e-3])
MIXED = np.array([-3.25, 1.75, 0.375, -0.01])
OTHER = np.array([0.5, -1.25, 2.0, 1e-4])
GRID = np.array([[0.5, -1.25, 2.0], [3.0, 0.125, -0.75]])

UNARY = [
    ("exp", MIXED), ("expm1", MIXED), ("abs", MIXED), ("sigmoid", MIXED), ("softplus", MIXED),
    ("log_sigmoid", MIXED), ("log", POSITIVE), ("log1p", POSITIVE), ("sqrt", POSITIVE),
    ("log1p", np.array([-0.5, 1e-30, -1e-20])), ("sigmoid", np.array([-700.0, 40.0])),
]  # fmt: skip


@pytest.mark.parametrize(("name", "x"), UNARY)
def test_elementwise_function_and_derivative(ops, name, x):
    """Each function of one array, and its derivative, encloses mpmath's."""
    check(ops, lambda o, x: weigh(getattr(o, name)(x)), {"x": x})


@pytest.mark.parametrize("name", ["minimum", "maximum", "logaddexp"])
def test_function_of_two_arrays(ops, name):
    """Functions of two arrays, equal in shape or broadcast, enclose mpmath's value and derivatives."""
    check(ops, lambda o, x, y: weigh(getattr(o, name)(x, y)), {"x": MIXED, "y": OTHER})
    check(ops, lambda o, x, y: weigh(getattr(o, name)(x, y)), {"x": GRID, "y": np.array([[0.25], [-2.0]])})


def test_xlogy(ops):
    """xlogy(a, b) is a log b, with derivatives log b and a / b."""
    check(ops, lambda o, x, y: weigh(o.xlogy(x, y)), {"x": MIXED, "y": POSITIVE})


ARITHMETIC = {
    "add": lambda o, x, y: x + y,
    "subtract": lambda o, x, y: x - y,
    "multiply": lambda o, x, y: x * y,
    "divide": lambda o, x, y: x / y,
    "numbers on either side": lambda o, x, y: 2 - 3 / y + (x * 0.1 + 1) / 7 - (1 - x) * 5 + (-y),
    "powers": lambda o, x, y: x**3 - 2 * y**2 + x**0 + y**1 + y**-2,
    "one array twice": lambda o, x, y: x * x / (x + 3 * y * y) - x,
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(ops, name):
    """The operators, with arrays and numbers, and broadcast over either operand."""
    fn = ARITHMETIC[name]
    check(ops, lambda o, x, y: weigh(fn(o, x, y)), {"x": MIXED, "y": OTHER})
    check(ops, lambda o, x, y: weigh(fn(o, x, y)), {"x": GRID, "y": np.array([0.25, -2.0, 3.0])})
    check(ops, lambda o, x, y: weigh(fn(o, x, y)), {"x": np.array(1.5), "y": GRID})


AXES = {
    **{
        f"{name} over {axis}": lambda o, x, name=name, axis=axis: getattr(o, name)(x, axis)
        for name in ("sum", "mean", "max", "min")
        for axis in (None, 0, 1, -1)
    },
    **{
        f"{name} along {axis}": lambda o, x, name=name, axis=axis: getattr(o, name)(x, axis=axis)
        for name in ("logsumexp", "softmax", "log_softmax", "cumsum")
        for axis in (0, -1)
    },
    "take an entry": lambda o, x: o.take(x, 1),
    "take from the end": lambda o, x: o.take(x, -1, axis=0),
    "take a list with repeats": lambda o, x: o.take(x, [2, 0, 2, 2]),
    "take rows": lambda o, x: o.take(x, [1, 1, 0], axis=0),
    "reshape": lambda o, x: o.reshape(x, (3, 2)),
    "concat": lambda o, x: o.concat([x, x * x, 2 * x]),
    "stack": lambda o, x: o.stack([x, x * x]),
    "full": lambda o, x: x * o.full((2, 3), 0.3, x),
    "clip": lambda o, x: o.clip(x, -1, 2.5) * x,
    "clip below": lambda o, x: o.clip(x, -1, None),
    "clip above": lambda o, x: o.clip(x, None, 1.5),
    "constant, cast and like": lambda o, x: o.like(o.cast(x * o.constant(0.1, x), "float16"), x),
}


@pytest.mark.parametrize("name", AXES)
def test_reductions_and_rearrangements(ops, name):
    """Reductions, functions along an axis and rearrangements, with their derivatives."""
    check(ops, lambda o, x: weigh(AXES[name](o, x)), {"x": GRID})


def random_expression(rng):
    """Return fn(ops, x, y) of vectors, smooth and tame, made of the whole vocabulary."""
    steps = [
        lambda o, a, b: a + b, lambda o, a, b: a - 0.5 * b, lambda o, a, b: a * b,
        lambda o, a, b: a / (1 + b * b), lambda o, a, b: o.exp(o.sigmoid(a) - 1),
        lambda o, a, b: o.log(o.softplus(a)), lambda o, a, b: o.sqrt(1 + a * a),
        lambda o, a, b: a - o.logsumexp(b), lambda o, a, b: o.softmax(a) * b,
        lambda o, a, b: o.cumsum(a) / 3, lambda o, a, b: o.take(a, [3, 1, 0, 0]),
        lambda o, a, b: o.where(np.array([True, False, True, False]), a, b),
        lambda o, a, b: o.log_softmax(a + b), lambda o, a, b: o.logaddexp(a, b),
        lambda o, a, b: a * o.mean(b), lambda o, a, b: o.xlogy(o.softmax(a), o.softmax(b)),
        lambda o, a, b: o.expm1(o.log_sigmoid(a)), lambda o, a, b: o.maximum(a, b),
        lambda o, a, b: o.log1p(o.abs(a)), lambda o, a, b: (a - o.max(a)) * b,
    ]  # fmt: skip
    plan = [(rng.choice(steps), rng.random(), rng.random()) for _ in range(8)]

    def fn(o, x, y):
        known = [x, y]
        for step, i, j in plan:
            # the newest is always used, so that the whole plan matters
            known.append(step(o, known[-1], known[int(j * len(known))]) + 0.01 * known[int(i * len(known))])
        return o.sum(known[-1])

    return fn


@pytest.mark.parametrize("seed", range(10))
def test_random_expressions(ops, seed):
    """Value and gradient of random expressions of eight operations enclose mpmath's."""
    rng = random.Random(seed)
    fn = random_expression(rng)
    x, y = (np.array([rng.gauss(0, 1.5) for _ in range(4)]) for _ in range(2))
    check(ops, fn, {"x": x, "y": y})


@pytest.mark.parametrize("seed", range(10, 16))
def test_balls_and_intervals_overlap(seed):
    """Balls and intervals, which share no arithmetic, agree on values and gradients."""
    rng = random.Random(seed)
    fn = random_expression(rng)
    columns = [np.array([rng.gauss(0, 2) for _ in range(4)]) for _ in range(2)]
    found = []
    for make in KINDS.values():
        o = make()
        leaves = [o.array(c) for c in columns]
        out = fn(o, *leaves)
        found.append([ends(v) for a in (out.values, *gradient(out, leaves)) for v in np.ravel(a)])
    for (low, high), (bottom, top) in zip(*found, strict=True):
        assert low <= top
        assert bottom <= high


WRONG = {
    "log": lambda c, x, y: c.number(1),
    "sqrt": lambda c, x, y: c.divide(c.number(1), y),
    "sigmoid": lambda c, x, y: y,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_derivative_is_caught(monkeypatch, balls, name):
    """The comparison with mpmath fails when the derivative of a function is wrong."""
    monkeypatch.setitem(elementwise.DERIVATIVES, name, WRONG[name])
    with pytest.raises(AssertionError):
        check(balls, lambda o, x: getattr(o, name)(x), {"x": POSITIVE})


def test_a_wrong_reverse_rule_is_caught(monkeypatch, balls):
    """The comparison with mpmath fails when softmax forgets to centre its cotangent."""
    original = ArrayOps.softmax

    def wrong(self, a, axis=-1):
        out = original(self, a, axis)
        return Array(self, out.elements, [(a, lambda g: self.arithmetic.multiply(g, out.elements))])

    monkeypatch.setattr(ArrayOps, "softmax", wrong)
    with pytest.raises(AssertionError):
        check(balls, lambda o, x: weigh(o.softmax(x)), {"x": GRID})


def floats(array):
    return [float(v) if isinstance(v, float) else float(sum(ends(v)) / 2) for v in np.ravel(array.values)]


SPECIAL = {
    "exp(-inf)": (lambda o: o.exp(o.array([-INF, INF, NAN])), [0, INF, NAN]),
    "log": (lambda o: o.log(o.array([0.0, INF, -1.0, -INF, NAN])), [-INF, INF, NAN, NAN, NAN]),
    "log1p": (lambda o: o.log1p(o.array([-1.0, INF, -2.0])), [-INF, INF, NAN]),
    "sqrt": (lambda o: o.sqrt(o.array([0.0, INF, -1.0])), [0, INF, NAN]),
    "add": (lambda o: 1 + o.array([-INF, INF, NAN]), [-INF, INF, NAN]),
    "inf - inf": (lambda o: o.array([INF, -INF]) - o.array([INF, INF]), [NAN, -INF]),
    "0 inf": (lambda o: o.array([0.0, -2.0, 3.0]) * INF, [NAN, -INF, INF]),
    "x / 0": (lambda o: o.array([1.0, -2.0, 0.0, INF]) / 0, [INF, -INF, NAN, INF]),
    "x / inf": (lambda o: o.array([1.0, INF]) / o.array([-INF, INF]), [0, NAN]),
    "sigmoid": (lambda o: o.sigmoid(o.array([-INF, INF])), [0, 1]),
    "softplus": (lambda o: o.softplus(o.array([-INF, INF])), [0, INF]),
    "maximum": (lambda o: o.maximum(o.array([-INF, INF, NAN, 1.0]), o.array([2.0, 1.0, 0.0, -INF])),
                [2, INF, NAN, 1]),
    "max": (lambda o: o.max(o.array([[-INF, -3.0], [-INF, -INF], [NAN, 1.0]]), -1), [-3, -INF, NAN]),
    "min": (lambda o: o.min(o.array([[-INF, -3.0], [INF, 5.0]]), -1), [-INF, 5]),
    "sum": (lambda o: o.sum(o.array([[1.0, -INF], [INF, -INF], [1.0, 2.0]]), -1), [-INF, NAN, 3]),
    "cumsum": (lambda o: o.cumsum(o.array([1.0, -INF, 2.0])), [1, -INF, -INF]),
    "xlogy": (lambda o: o.xlogy(o.array([0.0, 0.0, 0.0, 2.0]), o.array([0.0, NAN, -1.0, 0.0])),
              [0, 0, 0, -INF]),
    "logsumexp": (lambda o: o.logsumexp(o.array([[-INF, 2.0], [-INF, -INF], [INF, 1.0]])), [2, -INF, INF]),
    "softmax": (lambda o: o.softmax(o.array([[-INF, 2.0], [-INF, -INF]])), [0, 1, NAN, NAN]),
    "log_softmax": (lambda o: o.log_softmax(o.array([-INF, 2.0])), [-INF, 0]),
    "logaddexp": (lambda o: o.logaddexp(o.array([-INF, -INF]), o.array([2.0, -INF])), [2, -INF]),
    "where": (lambda o: o.where(np.array([True, False]), o.array([1.0, NAN]), 5), [1, 5]),
    "abs": (lambda o: o.abs(o.array([-INF, -1.0])), [INF, 1]),
    "mean of nothing": (lambda o: o.mean(o.array(np.zeros((2, 0))), -1), [NAN, NAN]),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_infinite_and_undefined_elements(ops, name):
    """Infinite and undefined elements follow the limits of IEEE 754."""
    fn, want = SPECIAL[name]
    np.testing.assert_array_equal(floats(fn(ops)), want)


def test_classification(ops):
    """isnan, isinf and isfinite tell the elements apart."""
    x = ops.array([1.0, INF, -INF, NAN])
    assert ops.isnan(x).tolist() == [False, False, False, True]
    assert ops.isinf(x).tolist() == [False, True, True, False]
    assert ops.isfinite(x).tolist() == [True, False, False, False]
    assert ops.isfinite(ops.array([1.0])).tolist() == [True]


def test_comparisons(ops):
    """Comparisons give boolean arrays; nan compares unequal; ties are decided between points."""
    x, y = ops.array([1.0, 2.0, 3.0, INF, NAN, -INF]), ops.array([2.0, 2.0, 2.0, INF, 1.0, 5.0])
    assert (x < y).tolist() == [True, False, False, False, False, True]
    assert (x <= y).tolist() == [True, True, False, True, False, True]
    assert (x > y).tolist() == [False, False, True, False, False, False]
    assert (x >= y).tolist() == [False, True, True, True, False, False]
    assert (x == y).tolist() == [False, True, False, True, False, False]
    assert (x != y).tolist() == [True, False, True, False, True, True]
    assert (~(x < 2.5) & (y == 2)).tolist() == [False, False, True, False, False, False]


def test_undecided_comparisons_ask_for_more_bits(ops):
    """What an enclosure straddles is not guessed: a comparison, a divisor, a logarithm, a root."""
    zero = ops.exp(ops.array([0.3])) - ops.exp(ops.array([0.3]))
    with pytest.raises(Undecided):
        _ = zero > 0
    with pytest.raises(Undecided):
        _ = zero == 0
    for fn in (lambda z: 1 / z, ops.log, ops.sqrt, lambda z: z * INF, lambda z: ops.log1p(z - 1)):
        with pytest.raises(Undecided):
            fn(zero)


def vjp(ops, fn, *columns):
    leaves = [ops.array(np.asarray(c)) for c in columns]
    return [[float(v) if isinstance(v, float) else float(sum(ends(v)) / 2) for v in np.ravel(g)]
            for g in gradient(fn(*leaves), leaves)]  # fmt: skip


def test_where_passes_nothing_to_what_it_does_not_select(ops):
    """A branch that is not selected contributes nothing, also where it is infinite or undefined."""
    x = [0.0, -1.0, 2.0, INF]
    assert vjp(ops, lambda a: ops.where(a == 2, ops.log(a), 0), x) == [[0, 0, 0.5, 0]]
    assert vjp(ops, lambda a: ops.where(a == 2, 1 / ops.sqrt(a), a), [0.0, 4.0]) == [[1, 1]]
    assert vjp(ops, lambda a: ops.where(a > 0, a / a, 0 * a), [0.0]) == [[0]]


def test_stop_gradient_cuts_the_derivative(ops):
    """stop_gradient keeps the value and passes no derivative."""
    x = [0.5, 2.0]
    assert vjp(ops, lambda a: ops.stop_gradient(a) * a, x) == [[0.5, 2.0]]
    assert vjp(ops, ops.stop_gradient, x) == [[0, 0]]
    assert floats(ops.stop_gradient(ops.array(x))) == x


def test_masks_multiply_and_count(ops):
    """Boolean and integer NumPy arrays mix with exact arrays, on either side."""
    mask = np.array([True, False, True])
    x = ops.array([1.0, 2.0, 4.0])
    assert floats(mask * x) == floats(x * mask) == [1, 0, 4]
    assert floats(ops.sum(x * mask) / ops.sum(mask)) == [2.5]
    assert floats(np.float64(2) * x) == [2, 4, 8]
    assert floats(Fraction(1, 4) * x) == [0.25, 0.5, 1]


KINKS = {
    "abs": lambda o, x: o.abs(x),
    "maximum": lambda o, x: o.maximum(x, 0),
    "minimum": lambda o, x: o.minimum(0, x),
    "clip": lambda o, x: o.clip(x, 0, 1),
    "max": lambda o, x: o.max(o.concat([x, x * 3])),
    "min": lambda o, x: o.min(o.stack([x, -x])),
}


@pytest.mark.parametrize("name", KINKS)
def test_the_derivative_at_a_kink_is_undefined(ops, name):
    """At an exact tie the value is there and the derivative is refused, unless nothing pulls on it."""
    x = ops.array([0.0])
    out = KINKS[name](ops, x)
    assert floats(out) == [0]
    with pytest.raises(Undefined, match="kink"):
        gradient(out, [x])
    assert vjp(ops, lambda a: ops.where(np.array([False]), KINKS[name](ops, a), 7 * a), [0.0]) == [[7]]


def test_ties_that_cannot_matter_have_a_derivative(ops):
    """The maximum of an array and itself has a derivative, and so has a logsumexp shifted by its max."""
    assert vjp(ops, lambda a: ops.maximum(a, a) + ops.minimum(a, a), [2.0, 3.0]) == [[2, 2]]
    x = ops.array([1.5, 1.5, 0.25])
    top = ops.max(x)
    out = ops.log(ops.sum(ops.exp(x - top))) + top
    want = value(lambda o, x: o.softmax(x), {"x": np.array([1.5, 1.5, 0.25])})
    for got, p in zip(gradient(out, [x])[0], want, strict=True):
        assert is_within(p, got, VALUE_SLACK)


def test_open_ties_enclose_both_branches(ops):
    """Where a tie is not settled the derivative encloses those of both branches."""
    x = ops.array([0.3])
    out = ops.maximum(ops.exp(x) - ops.exp(ops.stop_gradient(x)), 0)
    low, high = ends(gradient(out, [x])[0][0])
    assert low <= 0
    with mpmath.workdps(80):
        assert high >= Fraction(str(mpmath.exp(mpmath.mpf(0.3)) * (1 - mpmath.mpf(10) ** -50)))


def entropy(o, x):
    p = o.softmax(x)
    return -o.sum(o.xlogy(p, p))


def kl(o, x, y):
    p = o.softmax(x)
    return o.sum(o.where(p == 0, 0, p * (o.log_softmax(x) - o.log_softmax(y))))


MASKED = {
    "logsumexp": lambda o, x: o.logsumexp(x),
    "entropy": entropy,
    "entropy by log_softmax": lambda o, x: -o.sum(o.xlogy(o.exp(o.log_softmax(x)), o.softmax(x))),
    "selected": lambda o, x: o.take(o.log_softmax(x), 0),
}


@pytest.mark.parametrize("name", MASKED)
def test_masked_entries_contribute_nothing(ops, name):
    """Entries at -inf change neither value nor gradient, and have the gradient 0 themselves."""
    fn = MASKED[name]
    kept = np.array([0.5, -1.25, 2.0])
    x = ops.array([0.5, -INF, -1.25, 2.0, -INF])
    out = fn(ops, x)
    assert is_within(value(fn, {"x": kept}), out.values[()], VALUE_SLACK)
    slopes = gradient(out, [x])[0]
    for i, k in enumerate((0, 2, 3)):
        assert is_within(derivative(fn, {"x": kept}, "x", i), slopes[k], SLOPE_SLACK)
    assert ends(slopes[1]) == ends(slopes[4]) == (0, 0)


def test_masked_kl(ops):
    """Entries masked in both distributions leave the KL divergence and its gradients as without them."""
    a, b = np.array([0.5, -1.25, 2.0]), np.array([0.25, 1.0, -0.5])
    x, y = ops.array([0.5, -INF, -1.25, 2.0]), ops.array([0.25, -INF, 1.0, -0.5])
    out = kl(ops, x, y)
    assert is_within(value(kl, {"x": a, "y": b}), out.values[()], VALUE_SLACK)
    for name, slopes in zip("xy", gradient(out, [x, y]), strict=True):
        for i, k in enumerate((0, 2, 3)):
            assert is_within(derivative(kl, {"x": a, "y": b}, name, i), slopes[k], SLOPE_SLACK)
        assert ends(slopes[1]) == (0, 0)


def test_derivatives_of_xlogy_at_zero(ops):
    """At a = 0 the derivatives of xlogy are log(b) with respect to a and 0 with respect to b."""
    by_a, by_b = vjp(ops, ops.xlogy, [0.0, 0.0, 0.0], [1.0, 0.0, -1.0])
    np.testing.assert_array_equal(by_a, [0, -INF, NAN])
    assert by_b == [0, 0, 0]


def test_infinite_derivatives(ops):
    """A derivative may be infinite."""
    assert vjp(ops, ops.sqrt, [0.0]) == [[INF]]
    assert vjp(ops, lambda a: ops.log(a) * -2, [0.0]) == [[-INF]]


def test_logsumexp_of_a_thousand(balls):
    """logsumexp of 1000 logits, of large and very different size, and its gradient enclose mpmath's."""
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.normal(0, 3, 990) + 4000, rng.normal(0, 3, 9), [-1e4]])
    leaf = balls.array(x)
    out = balls.logsumexp(leaf)
    with mpmath.workdps(100):
        e = [mpmath.exp(mpmath.mpf(float(v)) - 4000) for v in x]
        total = mpmath.fsum(e)
        assert is_within(mpmath.log(total) + 4000, out.values[()], VALUE_SLACK)
        for got, v in zip(gradient(out, [leaf])[0], e, strict=True):
            assert is_within(v / total, got, VALUE_SLACK)


def test_identical_distributions_enclose_zero(ops):
    """KL(p||p) and its gradient are enclosures of zero, as narrow as the precision."""
    x = np.random.default_rng(2).normal(size=9)
    a, b = ops.array(x), ops.array(x)
    out = kl(ops, a, b)
    for v in (out.values[()], *gradient(out, [a])[0]):
        low, high = ends(v)
        assert low <= 0 <= high
        assert high - low < Fraction(1, 2**180)


def test_leaf_that_does_not_matter(ops):
    """A leaf that the output does not depend on has the gradient 0, and the output itself has 1."""
    x, y = ops.array([1.0, 2.0]), ops.array([[3.0]])
    found = gradient(x, [x, y])
    assert [ends(v) for v in found[0]] == [(1, 1), (1, 1)]
    assert found[1].shape == (1, 1)
    assert ends(found[1][0, 0]) == (0, 0)


def test_misuse_is_explained(ops):
    """A fractional power, an index out of range and a foreign operand are explained in one line."""
    x = ops.array([1.0, 2.0])
    with pytest.raises(UsageError, match="integer exponent"):
        x**0.5
    with pytest.raises(UsageError, match="2 entries"):
        ops.take(x, 2)
    with pytest.raises(UsageError, match="got str"):
        x + "1"


def test_names_match_the_plain_vocabulary(ops):
    """Every name of the mpmath vocabulary, and the conversions, exist on exact arrays."""
    names = [n for n in vars(MpOps) if not n.startswith("_")]
    assert len(names) > 30
    x = ops.array([0.0, 1.0])
    assert all(hasattr(ops, n) for n in names)
    assert ops.exact is True
    assert ops.format_of(x) == "exact"
    assert ops.is_array(x)
    assert not ops.is_array(np.zeros(2))
    assert ops.as_bool(x).tolist() == [False, True]
    assert ops.as_bool(np.array([2, 0])).tolist() == [True, False]
    assert ops.integer([1, 0], x).tolist() == [1, 0]


PLAIN = {
    "log": mpmath.log,
    "sqrt": mpmath.sqrt,
    "expm1": lambda x: mpmath.exp(x) - 1,
    "log1p": lambda x: mpmath.log(1 + x),
}


@pytest.mark.parametrize("precision", [64, 96, 137, 256])
@pytest.mark.parametrize("name", PLAIN)
def test_interval_functions_contain_the_truth(precision, name):
    """Intervals of log, sqrt, expm1 and log1p hold the true value, also next to their zeros."""
    scalars, rng = IntervalOps(precision), random.Random(precision)
    for _ in range(80):
        x = math.exp(rng.uniform(-100, 100 if name != "expm1" else 5))
        if name == "log" and rng.random() < 0.5:
            x = 1 + rng.choice([-1, 1]) * 2.0 ** -rng.randint(2, 52)
        got = getattr(scalars, name)(scalars.number(x))
        with mpmath.workprec(1500):
            assert is_within(PLAIN[name](mpmath.mpf(x)), got), x
        low, high = ends(got)
        # expm1 and log1p subtract, so that their width is relative to 1
        size = max(abs(low), abs(high)) if name in ("log", "sqrt") else max(1, abs(high))
        assert high - low <= size / 2 ** (precision - 5)


def test_interval_log_next_to_one_at_many_bits():
    """The interval of log(1 + 2**-k) holds the value where 1 + 2**-k is as near to 1 as intervals come."""
    for precision in (80, 128, 300):
        scalars = IntervalOps(precision)
        for k in (precision // 2, precision - 3, precision - 1):
            x = scalars.number(1) + scalars.number(Fraction(1, 2**k))
            with mpmath.workprec(2000):
                want = mpmath.log(1 + mpmath.mpf(2) ** -k)
                assert is_within(want, scalars.log(x))


def test_numbers_are_exact_or_enclosed():
    """Floats and integers are points; a Fraction is enclosed as tightly as the precision allows."""
    for scalars in (BallOps(), IntervalOps(PRECISION)):
        assert ends(scalars.number(0.1)) == (Fraction(0.1), Fraction(0.1))
        assert ends(scalars.number(-7)) == (-7, -7)
        low, high = ends(scalars.number(Fraction(1, 3)))
        assert low < Fraction(1, 3) < high
        assert high - low < Fraction(1, 2**195)
