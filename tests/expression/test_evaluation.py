"""Values of formulas: on scalars by Python's math, on NumPy arrays in a dtype, and on exact fractions."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from kl_audit.errors import UsageError
from kl_audit.expression import parse
from kl_audit.formats import BF16, FORMATS, find_format


class ScalarOps:
    """The vocabulary on Python floats."""

    exp, expm1, log, log1p, sqrt = math.exp, math.expm1, math.log, math.log1p, math.sqrt
    isnan, isinf, isfinite = math.isnan, math.isinf, math.isfinite
    abs, minimum, maximum = abs, min, max
    sigmoid = staticmethod(lambda x: 1 / (1 + math.exp(-x)))
    softplus = staticmethod(lambda x: math.log(1 + math.exp(x)))
    log_sigmoid = staticmethod(lambda x: -math.log(1 + math.exp(-x)))
    logaddexp = staticmethod(lambda a, b: math.log(math.exp(a) + math.exp(b)))
    xlogy = staticmethod(lambda a, b: 0.0 if a == 0 else a * math.log(b))
    where = staticmethod(lambda c, a, b: a if c else b)
    constant = staticmethod(lambda c, ref: c)
    full = staticmethod(lambda shape, c, ref: c)
    format_of = staticmethod(lambda x: "float64")
    stop_gradient = staticmethod(lambda x: x)
    cast = staticmethod(lambda x, name: float(find_format(name).cast([x])[0]))

    @staticmethod
    def clip(x, low, high):
        x = x if low is None else max(x, low)
        return x if high is None else min(x, high)


class ArrayOps:
    """The vocabulary on NumPy arrays; asks of a constant that it is given a float array."""

    exp, expm1, log, log1p, sqrt, abs = np.exp, np.expm1, np.log, np.log1p, np.sqrt, np.abs
    isnan, isinf, isfinite, minimum, maximum = np.isnan, np.isinf, np.isfinite, np.minimum, np.maximum
    logaddexp, where = np.logaddexp, np.where
    sum, mean, max, min = np.sum, np.mean, np.max, np.min
    softplus = staticmethod(lambda x: np.logaddexp(x, x.dtype.type(0)))
    constant = staticmethod(lambda c, ref: ref.dtype.type(c))
    format_of = staticmethod(lambda x: str(x.dtype))
    cast = staticmethod(lambda x, name: x.astype(find_format(name).dtype))
    stop_gradient = staticmethod(lambda x: x)
    cumsum = staticmethod(lambda x, axis=-1: np.cumsum(x, axis=axis))
    take = staticmethod(lambda x, index, axis=-1: np.take(x, index, axis=axis))
    logsumexp = staticmethod(lambda x, axis=-1: np.log(np.sum(np.exp(x), axis=axis)))
    softmax = staticmethod(lambda x, axis=-1: np.exp(x) / np.sum(np.exp(x), axis=axis, keepdims=True))

    @staticmethod
    def full(shape, value, ref):
        assert ref.dtype in [f.dtype for f in FORMATS.values()]
        return np.full(shape, value, dtype=ref.dtype)

    @staticmethod
    def clip(x, low, high):
        assert all(limit is None or type(limit) is float for limit in (low, high))
        x = x if low is None else np.maximum(x, x.dtype.type(low))
        return x if high is None else np.minimum(x, x.dtype.type(high))


class ExactOps:
    """The rational part of the vocabulary, on fractions; floats are let in nowhere."""

    exact = True

    @staticmethod
    def number(value):
        assert isinstance(value, Fraction) or not math.isfinite(value)
        return value

    isnan = staticmethod(lambda x: False)
    where = staticmethod(lambda c, a, b: a if c else b)
    maximum, minimum, abs = max, min, abs
    cast = staticmethod(lambda x, name: x)
    log = staticmethod(lambda x: ("log", x))
    exp = staticmethod(lambda x: ("exp", x))

    @staticmethod
    def clip(x, low, high):
        assert all(limit is None or type(limit) is float for limit in (low, high))
        x = x if low in (None, -math.inf) else max(x, Fraction(low))
        return x if high is None else min(x, Fraction(high))


X = 0.37
SCALAR = [
    ("exp(x) - x - 1", lambda x: math.exp(x) - x - 1),
    ("expm1(x) - x", lambda x: math.expm1(x) - x),
    ("2 - x - 3", lambda x: 2 - x - 3),
    ("2 / x / 3", lambda x: 2 / x / 3),
    ("-x**2", lambda x: -(x**2)),
    ("x^2^3", lambda x: x**8),
    ("x**-1", lambda x: 1 / x),
    ("x * pi + e", lambda x: x * math.pi + math.e),
    ("log(2) * x", lambda x: math.log(2) * x),
    ("x + 0.1 + 0.2", lambda x: x + 0.1 + 0.2),
    ("x + (0.1 + 0.2)", lambda x: x + (0.1 + 0.2)),
    ("x * 0x1.8p-3", lambda x: x * 0.1875),
    ("where(x < 1 and not x < 0, x, 2)", lambda x: x),
    ("where(x > 1, x, 2)", lambda x: 2),
    ("where((x > 1) | (x != x), 3, 4)", lambda x: 4),
    ("where(isnan(x) or isfinite(x) and x >= 0, 1, 0)", lambda x: 1),
    ("clip(x, 0.5)", lambda x: 0.5),
    ("clip(x, -x, None) + clip(5, -1, x)", lambda x: 2 * x),
    ("clip(x, None, min(0.25, 1) / 2)", lambda x: 0.125),
    ("max(x, 1, 2) + min(x, 0.1)", lambda x: 2 + 0.1),
    ("square(x) + square(3)", lambda x: x * x + 9),
    ("nan_to_num(x * nan) + x", lambda x: x),
    ("sigmoid(x) + softplus(x) + log_sigmoid(x)", lambda x: (
        ScalarOps.sigmoid(x) + ScalarOps.softplus(x) + ScalarOps.log_sigmoid(x))),
    ("logaddexp(x, 0) + xlogy(0, x) + xlogy(2, x)", lambda x: math.log(math.exp(x) + 1) + 2 * math.log(x)),
    ("d = 2 * x; s = d + 1; s * d", lambda x: (2 * x + 1) * 2 * x),
    ("c = 20; clip(x * 100, -c, c)", lambda x: 20),
    ("x = x + 1; x = x * 2; x", lambda x: (x + 1) * 2),
    ("big = x > 1; where(big, 1, -1)", lambda x: -1),
    ("m = ~(x > 1); where(m & m, x, 0)", lambda x: x),
    ("bf16(x) - x", lambda x: float(BF16.cast([x])[0]) - x),
    ("sg(x) + abs(-x) + sqrt(x) + log1p(x)", lambda x: x + x + math.sqrt(x) + math.log1p(x)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), SCALAR, ids=[t for t, _ in SCALAR])
def test_a_formula_has_the_value_that_python_gives_it(text, value):
    """On floats, operation for operation, a formula is the Python expression."""
    assert parse(text)(ScalarOps, x=X) == value(X)


INF = mpmath.inf
FOLDED = [
    ("exp(1)", mpmath.e), ("expm1(1e-10)", mpmath.expm1(mpmath.mpf(1e-10))), ("log(10)", mpmath.log(10)),
    ("log1p(1e-10)", mpmath.log1p(mpmath.mpf(1e-10))), ("sqrt(2)", mpmath.sqrt(2)), ("abs(-3)", 3),
    ("sigmoid(-2)", 1 / (1 + mpmath.exp(2))), ("softplus(-3)", mpmath.log1p(mpmath.exp(-3))),
    ("log_sigmoid(3)", -mpmath.log1p(mpmath.exp(-3))), ("logaddexp(1, 1)", 1 + mpmath.log(2)),
    ("logaddexp(1, 2)", mpmath.log(mpmath.e + mpmath.e**2)), ("logaddexp(-inf, 1)", 1),
    ("xlogy(3, 2)", 3 * mpmath.log(2)), ("xlogy(0, 0)", 0), ("minimum(2, 3)", 2), ("maximum(2, 3)", 3),
    ("clip(7, 1, 5)", 5), ("clip(7, max=5)", 5), ("2**-3", 0.125), ("(-2)**3", -8), ("sigmoid(-1000)", 0),
    ("nan_to_num(0/0)", 0), ("sg(2)", 2), ("square(3)", 9), ("1/0", INF), ("-1/0", -INF), ("1/-0.0", -INF),
    ("exp(1000)", INF), ("log(0)", -INF), ("log1p(-1)", -INF), ("1e400", INF), ("1e200**2", INF),
    ("(-1e200)**3", -INF), ("0**-1", INF), ("logaddexp(inf, inf)", INF), ("softplus(inf)", INF),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), FOLDED, ids=[t for t, _ in FOLDED])
def test_constants_fold_in_float64(text, value):
    """A constant subtree is one float64 number, good to two units in the last place."""
    got = parse(f"where(x > 0, {text}, x)")(ScalarOps, x=1.0)
    assert got == pytest.approx(float(value), rel=2.0**-51, abs=0)


UNDEFINED = [
    "0/0", "log(-1)", "sqrt(-1)", "log1p(-2)", "inf - inf", "max(nan, 1)", "min(1, nan)", "softplus(nan)",
    "logaddexp(nan, 1)", "xlogy(0, nan)", "clip(nan, 0, 1)", "nan**2", "nan / 0",
]  # fmt: skip


@pytest.mark.parametrize("text", UNDEFINED)
def test_undefined_constants_are_nan(text):
    """Where Python raises, or its min forgets NaN, the fold says NaN."""
    assert math.isnan(parse(f"where(x > 0, {text}, x)")(ScalarOps, x=1.0))


ARRAYS = [
    ("exp(x) - x - 1", lambda x, c: np.exp(x) - x - 1),
    ("0.1 * x + pi", lambda x, c: c(0.1) * x + c(math.pi)),
    ("1 / 3 * x", lambda x, c: c(1 / 3) * x),
    ("where(abs(x) < 1e-2, 0.5 * x * x, x)", lambda x, c: np.where(np.abs(x) < c(1e-2), c(0.5) * x * x, x)),
    ("where(x > 0, 1, 0.1)", lambda x, c: np.where(x > 0, c(1), c(0.1))),
    ("where(x > 0, x, 0.1)", lambda x, c: np.where(x > 0, x, c(0.1))),
    ("m = x > 0.3; where(m and x < 1, 1, -1)", lambda x, c: np.where((x > c(0.3)) & (x < 1), c(1), c(-1))),
    ("clip(x, -0.3, 2)", lambda x, c: np.minimum(np.maximum(x, c(-0.3)), c(2))),
    ("clip(x, max=-x)", lambda x, c: np.minimum(x, -x)),
    ("max(x, 0.1) - min(x, 0)", lambda x, c: np.maximum(x, c(0.1)) - np.minimum(x, c(0))),
    ("nan_to_num(x)", lambda x, c: x),
    ("softplus(x) + logaddexp(0, x)", lambda x, c: np.logaddexp(x, c(0)) + np.logaddexp(c(0), x)),
    ("x + sum(x)", lambda x, c: x + np.sum(x)),
    ("max(x, axis=-1) + min(x, dim=0) + mean(x, 0)", lambda x, c: np.max(x) + np.min(x) + np.mean(x)),
    ("softmax(x) * cumsum(x)", lambda x, c: np.exp(x) / np.sum(np.exp(x)) * np.cumsum(x)),
    ("x - logsumexp(x)", lambda x, c: x - np.log(np.sum(np.exp(x)))),
    ("x[-1] + x[0]", lambda x, c: x[-1] + x[0]),
    ("x[0, -2] + x[[1, 2]]", lambda x, c: x[[0, -2]] + x[[1, 2]]),
    ("x + -0.0", lambda x, c: x + c(-0.0)),
    ("9007199254740993 * x", lambda x, c: c(9007199254740993) * x),
]


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda f: f.short)
@pytest.mark.parametrize(("text", "value"), ARRAYS, ids=[t for t, _ in ARRAYS])
def test_arrays_keep_their_dtype(text, value, fmt):
    """Constants take the dtype of the array they meet, in every format, to the bit."""
    x = fmt.cast([-2.5, -0.125, 0.0, 0.37, 1.75])
    with np.errstate(all="ignore"):
        got, want = parse(text)(ArrayOps, x=x), value(x, fmt.dtype.type)
    assert got.dtype == fmt.dtype
    assert got.tobytes() == want.tobytes()


def test_two_constant_branches_take_the_dtype_of_the_condition():
    """The dtype is that of what was compared, casts included, and the shape that of the condition."""
    x = np.ones((2, 3), dtype=BF16.dtype)
    assert parse("where(float32(x) > 0, 1, 0)")(ArrayOps, x=x).dtype == np.float32
    got = parse("where(sum(x, axis=-1) > 1, 1, 0)")(ArrayOps, x=x)
    assert (got.dtype, got.shape) == (BF16.dtype, (2,))
    mask = np.array([True, False, True])
    got = parse("where(mask, 1, 0) * x")(ArrayOps, x=x, mask=mask)
    assert got.dtype == BF16.dtype
    assert got.astype(float).tolist() == [[1, 0, 1]] * 2


def test_conditions_are_values_too():
    """A formula may be a condition."""
    x = np.array([-1.0, 0.5, 2.0])
    assert parse("x > 0 and not x > 1")(ArrayOps, x=x).tolist() == [False, True, False]


def test_each_assignment_is_evaluated_once():
    """Names share their value: doubling a name 60 times takes 60 additions."""
    doubled = parse("a = x + x;" + "a = a + a;" * 59 + "a")
    assert doubled(ScalarOps, x=1.0) == 2.0**60
    squared = parse("square(" * 60 + "x" + ")" * 60)
    assert squared(ScalarOps, x=1.0) == 1.0
    clipped = parse("clip(" * 60 + "x" + ", x, 2 * x)" * 60)
    assert clipped(ScalarOps, x=1.0) == 1.0


EXACT = [
    ("0.1 * x + 0.2", Fraction(1, 10) * 3 + Fraction(1, 5)),
    ("1 / 3 * x", Fraction(1)),
    ("1e-400 * x", 3 * Fraction(10) ** -400),
    ("9007199254740993 - x", Fraction(9007199254740990)),
    ("clip(x, 0.1, 0.3)", Fraction(3, 10)),
    ("clip(x, -inf, 0.5)", Fraction(1, 2)),
    ("clip(x, 1 / 3 + 3, 5)", Fraction(10, 3)),
    ("where(x > 1, 0.1, 0)", Fraction(1, 10)),
    ("c = 0.1; max(c, c * x)", Fraction(3, 10)),
    ("nan_to_num(bf16(x)) ** -2", Fraction(1, 9)),
    ("square(x) - x^2 + square(1 / 3)", Fraction(1, 9)),
]


@pytest.mark.parametrize(("text", "value"), EXACT, ids=[t for t, _ in EXACT])
def test_exact_arithmetic_loses_nothing(text, value):
    """Literals reach exact arithmetic as the fractions that were written."""
    got = parse(text)(ExactOps, x=Fraction(3))
    assert isinstance(got, Fraction)
    assert got == value


def test_exact_arithmetic_has_its_own_functions_and_constants():
    """log(2) is the ops' own log of 2, e its exp of 1, inf a number; pi only where it is known."""
    assert parse("where(x > 0, log(2), x)")(ExactOps, x=Fraction(1)) == ("log", Fraction(2))
    assert parse("where(x > 0, e, x)")(ExactOps, x=Fraction(1)) == ("exp", Fraction(1))
    assert parse("where(x > 0, -inf, x)")(ExactOps, x=Fraction(1)) == -math.inf
    with pytest.raises(UsageError, match="pi has no exact value here"):
        parse("pi * x")(ExactOps, x=Fraction(1))

    class WithPi(ExactOps):
        pi = staticmethod(lambda: Fraction(22, 7))

    assert parse("pi * x")(WithPi, x=Fraction(7)) == 22


@pytest.mark.parametrize("value", [10.0, -2.5, 0.0, -0.0, math.inf, -math.inf, 2.0**-1074, 0.1])
def test_a_bound_constant_is_as_if_it_were_written(value):
    """To the sign of zero, in floats and in arrays."""
    text = repr(value)
    bound = parse("minimum(x + c, c)").bind({"c": value})
    written = parse(f"minimum(x + {text}, {text})")
    assert bound.names == ("x",)
    for x in (0.0, 3.0, -7.5):
        got, want = bound(ScalarOps, x=x), written(ScalarOps, x=x)
        assert (got, math.copysign(1, got)) == (want, math.copysign(1, want))
    got = bound(ArrayOps, x=np.array([0.0, 3.0], np.float32))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, written(ArrayOps, x=np.array([0.0, 3.0], np.float32)))


def test_a_bound_nan_is_nan():
    """It has no way to be written but its name."""
    assert math.isnan(parse("x + c").bind({"c": math.nan})(ScalarOps, x=1.0))


def test_clipping_by_a_bound_constant_is_a_clip():
    """With numbers for limits: the operations get floats, never arrays."""

    class Clip(ScalarOps):
        @staticmethod
        def clip(x, low, high):
            assert (type(low), type(high)) == (float, float)
            return min(max(x, low), high)

    assert parse("clip(x, -c, c)").bind({"c": 10.0})(Clip, x=1e4) == 10.0


def test_a_bound_expression_survives_a_process_boundary():
    """Its constants go along."""
    again = pickle.loads(pickle.dumps(parse("c*x").bind({"c": 3.0})))
    assert again(ScalarOps, x=2.0) == 6.0


def test_constants_that_do_not_occur_are_left_out_and_one_name_must_stay():
    """A formula of constants alone has no input."""
    assert parse("x + 1").bind({"c": 3.0})(ScalarOps, x=2.0) == 3.0
    with pytest.raises(UsageError, match="no variable is left of c"):
        parse("c + 1").bind({"c": 3.0})
