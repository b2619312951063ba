"""ULP error, rounding and steps, against gfloat, ml_dtypes, NumPy and mpmath."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from conftest import GFLOAT, each
from gfloat import round_float
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kl_audit.formats import BF16, FP16, FP32, FP64
from kl_audit.ulp import (
    floor_log2,
    overflow_threshold,
    round_to_format,
    steps_between,
    ulp,
    ulp_error,
    ulp_exponent,
)

below_64 = pytest.mark.parametrize("fmt", [FP32, FP16, BF16], ids=lambda f: f.short)
narrow = pytest.mark.parametrize("fmt", [FP16, BF16], ids=lambda f: f.short)

#: Rationals of every magnitude that the formats know, and beyond.
mantissas = st.fractions(min_value=1, max_value=2).filter(lambda f: f < 2)
signs = st.sampled_from([1, -1])


def two(e):
    return Fraction(2) ** e


def rationals(fmt, low=None, high=None):
    low = fmt.emin - fmt.precision - 3 if low is None else low
    high = fmt.emax + 1 if high is None else high
    return st.builds(lambda s, m, e: s * m * two(e), signs, mantissas, st.integers(low, high))


def same(a, b):
    return (a, bool(np.signbit(a))) == (b, bool(np.signbit(b)))


def nth(fmt, index):
    return fmt.finite_values(index, index + 1)


def bracket_round(t, fmt):
    """Round to a 16-bit format by looking for the nearest of all its values."""
    values = fmt.finite_values(fmt.nonnegative_count).astype(np.float64).tolist()
    values.append(2.0 ** (fmt.emax + 1))  # stands for infinity: the tie there is the threshold
    a = abs(t)
    i = min(int(np.searchsorted(values, float(a))), len(values) - 1)
    near = range(max(0, i - 2), min(len(values), i + 3))
    best = min(near, key=lambda j: (abs(Fraction(values[j]) - a), j % 2))
    got = values[best] if best < len(values) - 1 else float("inf")
    return -got if t < 0 else got


@given(t=st.fractions().filter(bool), e=st.integers(-3000, 3000))
@example(t=Fraction(1), e=0)
@example(t=Fraction(-1), e=-2000)
@example(t=1 - Fraction(1, 2**200), e=7)
@example(t=1 + Fraction(1, 2**200), e=-7)
def test_floor_log2_brackets_the_value(t, e):
    """floor_log2 gives the e with 2**e <= |t| < 2**(e+1), exactly."""
    t = t * two(e)
    k = floor_log2(t)
    assert two(k) <= abs(t) < two(k + 1)


@pytest.mark.parametrize("fmt", [FP64, FP32, FP16], ids=lambda f: f.short)
@given(data=st.data())
def test_ulp_agrees_with_numpy_spacing(fmt, data):
    """The ulp of a positive number of the format is the spacing that NumPy reports."""
    index = data.draw(st.integers(0, fmt.nonnegative_count - 2))
    x = np.array([index], dtype=fmt.uint).view(fmt.dtype)
    assert ulp(Fraction(float(x[0])), fmt) == Fraction(float(np.spacing(x)[0]))
    assert ulp(Fraction(-float(x[0])), fmt) == Fraction(float(np.spacing(x)[0]))


@narrow
def test_ulp_is_the_gap_to_the_next_number(fmt):
    """The ulp at each positive number is the gap to the next one, all through a 16-bit format."""
    values = fmt.finite_values(fmt.nonnegative_count).astype(np.float64)
    for a, b in zip(values[:-1:7].tolist(), values[1::7].tolist(), strict=True):
        assert ulp(Fraction(a), fmt) == Fraction(b) - Fraction(a)


@each
def test_ulp_at_zero_and_across_powers_of_two(fmt):
    """The ulp doubles at a power of two, not before, and is the smallest number below normals."""
    small = Fraction(fmt.smallest)
    assert ulp(Fraction(0), fmt) == small
    assert ulp(small / 1000, fmt) == small
    assert ulp(Fraction(fmt.smallest_normal), fmt) == small
    assert ulp(2 * Fraction(fmt.smallest_normal), fmt) == 2 * small
    tiny = Fraction(1, 2**5000)
    for e in (0, 1, -5, 10):
        assert ulp_exponent(two(e), fmt) == e - fmt.precision + 1
        assert ulp_exponent(-two(e), fmt) == e - fmt.precision + 1
        assert ulp_exponent(two(e) - tiny, fmt) == e - fmt.precision
        assert ulp_exponent(two(e) + tiny, fmt) == e - fmt.precision + 1


@each
@given(value=st.floats(allow_nan=False, allow_infinity=False))
@example(value=-0.0)
@example(value=5e-324)
def test_rounding_agrees_with_gfloat(fmt, value):
    """Rounding a float64 gives gfloat's result, the sign of zero apart for a negative zero."""
    want = round_float(GFLOAT[fmt.short], value)
    got = round_to_format(Fraction(value), fmt)
    assert same(got, want if value != 0 else 0.0)


@below_64
@given(data=st.data())
def test_rounding_agrees_with_gfloat_in_every_binade(fmt, data):
    """Rounding agrees with gfloat from below the smallest number to beyond the overflow."""
    value = float(data.draw(rationals(fmt)))
    assert same(round_to_format(Fraction(value), fmt), round_float(GFLOAT[fmt.short], value))


@below_64
@given(data=st.data())
def test_exact_ties_agree_with_the_dtype(fmt, data):
    """Halfway between two neighbours, rounding agrees with NumPy's and ml_dtypes' own cast."""
    index = data.draw(st.integers(0, fmt.nonnegative_count - 2))
    sign = data.draw(signs)
    pair = np.array([index, index + 1], dtype=fmt.uint).view(fmt.dtype).astype(np.float64)
    tie = sign * (float(pair[0]) + float(pair[1])) / 2  # exact in float64: p + 1 bits
    want = np.float64(np.array([tie]).astype(fmt.dtype)[0])
    assert same(round_to_format(Fraction(tie), fmt), float(want))
    even = pair[index % 2]
    assert abs(round_to_format(Fraction(tie), fmt)) == even


@narrow
@given(data=st.data())
def test_rounding_is_to_the_nearest_of_all_values(fmt, data):
    """A rational rounds to the nearest of all values of a 16-bit format, ties to even."""
    t = data.draw(rationals(fmt))
    assert same(round_to_format(t, fmt), bracket_round(t, fmt))


@each
@given(data=st.data())
def test_normal_rounding_agrees_with_mpmath(fmt, data):
    """In the normal range a rational rounds as mpmath's division at p bits does."""
    t = data.draw(rationals(fmt, fmt.emin, fmt.emax - 1))
    with mpmath.workprec(fmt.precision):
        want = float(mpmath.mpf(mpmath.libmp.from_rational(
            t.numerator, t.denominator, fmt.precision, "n")))  # fmt: skip
    assert round_to_format(t, fmt) == want


@given(t=rationals(FP64, -1080, 1022))
def test_float64_rounding_agrees_with_python_division(t):
    """For float64 rounding agrees with Python's correctly rounded integer division."""
    assert same(round_to_format(t, FP64), t.numerator / t.denominator)


@below_64
@pytest.mark.parametrize("sign", [1, -1])
def test_double_rounding_through_float64_is_avoided(fmt, sign):
    """Just beside a tie the nearer neighbour is taken, where float64 would first make a tie."""
    u, tiny = Fraction(fmt.u), Fraction(1, 2**80)
    small, top = Fraction(fmt.smallest), overflow_threshold(fmt)
    cases = [
        (1 + u + tiny, 1 + 2 * u, 1),
        (1 + 3 * u - tiny, 1 + 2 * u, 1 + 4 * u),
        (small / 2 * (1 + tiny), small, 0),
        (small * Fraction(3, 2) * (1 - tiny), small, 2 * small),
        (Fraction(fmt.smallest_normal) - small / 2 * (1 + tiny),
         Fraction(fmt.smallest_normal) - small, fmt.smallest_normal),
        (top * (1 - tiny), fmt.largest, float("inf")),
    ]  # fmt: skip
    for t, want, through_float64 in cases:
        assert round_to_format(sign * t, fmt) == sign * want
        trap = round_float(GFLOAT[fmt.short], float(sign * t))
        assert trap == sign * through_float64 != sign * want


def test_float_of_an_mpf_double_rounds():
    """mpmath's nearest float32 of a number beside a tie differs from its float64 rounded again."""
    with mpmath.workprec(200):
        x = 1 + mpmath.mpf(2) ** -24 + mpmath.mpf(2) ** -80
        _, man, exp, _ = x._mpf_
    t = Fraction(int(man)) * two(exp)
    assert float(np.float32(float(x))) == 1.0
    assert round_to_format(t, FP32) == 1 + 2.0**-23


@each
def test_overflow_threshold_is_half_a_step_beyond_the_largest(fmt):
    """Rounding gives infinity from half a step beyond the largest number on, and not below."""
    top = overflow_threshold(fmt)
    assert top == Fraction(fmt.largest) + ulp(Fraction(fmt.largest), fmt) / 2
    below = top - Fraction(1, 2**3000)
    assert round_to_format(top, fmt) == float("inf")
    assert round_to_format(-top, fmt) == float("-inf")
    assert round_to_format(below, fmt) == fmt.largest
    assert round_to_format(-below, fmt) == -fmt.largest


@each
def test_zero_results_keep_the_sign(fmt):
    """A value that rounds to zero keeps its sign, and the tie at half the smallest goes to zero."""
    half = Fraction(fmt.smallest) / 2
    assert same(round_to_format(half, fmt), 0.0)
    assert same(round_to_format(-half, fmt), -0.0)
    assert same(round_to_format(Fraction(0), fmt), 0.0)
    assert round_to_format(half * 3, fmt) == 2 * fmt.smallest


@each
@given(data=st.data())
def test_correctly_rounded_is_within_half_an_ulp(fmt, data):
    """A correctly rounded finite result has an ulp error of at most one half."""
    t = data.draw(rationals(fmt))
    assume(abs(t) < overflow_threshold(fmt))
    assert abs(ulp_error(round_to_format(t, fmt), t, fmt)) <= Fraction(1, 2)


@each
@given(data=st.data())
def test_rounding_fixes_the_values_of_the_format(fmt, data):
    """A value of the format rounds to itself and has no error, and its neighbour one ulp."""
    index = data.draw(st.integers(1, min(fmt.nonnegative_count, 2**62) - 2))
    a, b = np.array([index, index + 1], dtype=fmt.uint).view(fmt.dtype).astype(float).tolist()
    assert round_to_format(Fraction(a), fmt) == a
    assert ulp_error(a, Fraction(a), fmt) == 0
    assert ulp_error(b, Fraction(a), fmt) == 1
    assert ulp_error(-b, Fraction(-a), fmt) == -1


def test_ulp_error_is_real_valued_and_signed():
    """The ulp error is the exact signed distance in units of the unrounded truth's ulp."""
    third = Fraction(1, 3)
    assert ulp_error(0.25, third, BF16) == (Fraction(1, 4) - third) * 2**9
    assert ulp_error(0.0, Fraction(1), FP16) == -1024
    # just below 1 the ulp is half of that above, although the truth rounds to 1
    assert ulp_error(1.0, 1 - Fraction(1, 2**100), FP32) == Fraction(2**24, 2**100)


@each
@given(data=st.data())
def test_neighbours_are_one_step_apart(fmt, data):
    """Neighbouring numbers are one step apart, in either direction with its sign."""
    # steps are float64: exact below 2**53, so neighbours of float64 are exact near zero only
    limit = fmt.nonnegative_count - 2 if fmt.bits < 64 else 2**52
    index = data.draw(st.integers(0, limit))
    x = np.array([index, index + 1], dtype=fmt.uint).view(fmt.dtype)
    for sign in (1, -1):
        a, b = (sign * x[:1]).astype(fmt.dtype), (sign * x[1:]).astype(fmt.dtype)
        assert steps_between(a, b, fmt).tolist() == [sign]
        assert steps_between(b, a, fmt).tolist() == [-sign]
        assert steps_between(a, a, fmt).tolist() == [0]


@below_64
@given(data=st.data())
def test_steps_are_antisymmetric_and_add_up(fmt, data):
    """Steps change sign with the direction, add along a path and count the values passed."""
    indices = data.draw(st.tuples(*[st.integers(0, fmt.finite_count - 1)] * 3))
    a, b, c = (nth(fmt, i) for i in indices)
    ab, bc, ac = (float(steps_between(p, q, fmt)[0]) for p, q in ((a, b), (b, c), (a, c)))
    assert float(steps_between(b, a, fmt)[0]) == -ab
    assert ab + bc == ac
    crossed = (indices[0] < fmt.nonnegative_count) - (indices[1] < fmt.nonnegative_count)
    assert ab == indices[1] - indices[0] - crossed  # -0 and +0 are one


@each
def test_steps_at_special_places(fmt):
    """Across zero, a power of two, the first normal number and the overflow steps are counted."""
    s, n, u = fmt.smallest, fmt.smallest_normal, fmt.u
    pairs = [(-s, s, 2), (-0.0, 0.0, 0), (0.0, s, 1), (n - s, n, 1), (0.0, n, 1 / (2 * u))]
    if fmt.bits < 64:
        pairs += [(1 - u, 1.0, 1), (1.0, 1 + 2 * u, 1), (1.0, 2.0, 1 / (2 * u)),
                  (fmt.largest, np.inf, 1)]  # fmt: skip
    for a, b, want in pairs:
        got = steps_between(np.array([a]).astype(fmt.dtype), np.array([b]).astype(fmt.dtype), fmt)
        assert got.tolist() == [want], (a, b)


@each
def test_steps_to_nan_are_nan(fmt):
    """Where either value is NaN the number of steps is nan, and only there."""
    a = np.array([np.nan, 1.0, np.nan, 1.0]).astype(fmt.dtype)
    b = np.array([1.0, np.nan, np.nan, 1.0]).astype(fmt.dtype)
    assert np.isnan(steps_between(a, b, fmt)).tolist() == [True, True, True, False]
