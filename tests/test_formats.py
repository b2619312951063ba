"""Formats: their constants, their values in order, rounding and bit patterns."""

import ml_dtypes
import numpy as np
import pytest
from conftest import GFLOAT, each
from gfloat import round_float
from hypothesis import given
from hypothesis import strategies as st

from kl_audit.errors import UsageError
from kl_audit.formats import BF16, FORMATS, FP16, FP32, FP64, find_format, hex_float, ordinal

narrow = pytest.mark.parametrize("fmt", [FP16, BF16], ids=lambda f: f.short)


def windows(fmt, width=3000):
    """Yield index ranges at the ends, at zero, at the first normal numbers and at 1."""
    half = fmt.nonnegative_count
    one = int(np.array([1.0]).astype(fmt.dtype).view(fmt.uint)[0])
    normal = 1 << (fmt.precision - 1)
    for middle in (0, half, half + normal, half - normal, half + one, half - one, 2 * half):
        start, stop = max(0, middle - width), min(middle + width, 2 * half)
        if stop < 2**63:  # an index is an int64
            yield start, stop


@pytest.mark.parametrize(
    ("fmt", "count"),
    [
        (BF16, 65_280),
        (FP16, 63_488),
        (FP32, 2**32 - 2**24),
        (FP64, 2**64 - 2**53),
    ],
    ids=lambda v: getattr(v, "short", v),
)
def test_finite_count(fmt, count):
    """The finite values of a format are all its bit patterns but infinities and NaN."""
    assert fmt.finite_count == count
    assert fmt.nonnegative_count == count // 2


@pytest.mark.parametrize(
    ("fmt", "u"),
    [(FP64, 2.0**-53), (FP32, 2.0**-24), (FP16, 2.0**-11), (BF16, 2.0**-8)],
    ids=lambda v: getattr(v, "short", v),
)
def test_unit_roundoff(fmt, u):
    """The unit roundoff is 2**-p, and 1 + 2u is the number after 1 while 1 + u rounds to 1."""
    assert fmt.u == u
    one = np.array([1.0]).astype(fmt.dtype)
    after = (one.view(fmt.uint) + 1).view(fmt.dtype)
    assert float(after[0]) == 1.0 + 2 * u
    assert float(fmt.cast([1.0 + u])[0]) == 1.0


@each
def test_constants_agree_with_finfo(fmt):
    """The extremes and the storage of a format are those that ml_dtypes and NumPy publish."""
    info = ml_dtypes.finfo(fmt.dtype)
    assert fmt.largest == float(info.max)
    assert fmt.smallest_normal == float(info.smallest_normal) == 2.0**fmt.emin
    assert fmt.smallest == float(info.smallest_subnormal)
    assert fmt.precision == info.nmant + 1
    assert fmt.bits == info.bits == 8 * fmt.dtype.itemsize == 8 * fmt.uint.itemsize
    assert (fmt.emin, fmt.emax) == (info.minexp, info.maxexp - 1)


@narrow
def test_every_finite_value_occurs_once(fmt):
    """The values of a 16-bit format are every finite bit pattern, each exactly once."""
    patterns = fmt.finite_values().view(np.uint16)
    every = np.arange(2**16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        finite = every[np.isfinite(every.view(fmt.dtype).astype(np.float64))]
    assert np.array_equal(np.sort(patterns), finite)


@each
def test_values_ascend(fmt):
    """Values ascend strictly, except that -0 comes directly before +0."""
    for start, stop in windows(fmt):
        values = fmt.finite_values(start, stop).astype(np.float64)
        assert len(values) == stop - start
        ties = np.flatnonzero(np.diff(values) <= 0)
        if start < fmt.nonnegative_count < stop:
            assert ties.tolist() == [fmt.nonnegative_count - 1 - start]
            pair = values[ties[0] : ties[0] + 2]
            assert np.array_equal(pair, [0.0, 0.0])
            assert np.signbit(pair).tolist() == [True, False]
        else:
            assert ties.size == 0


@pytest.mark.parametrize("fmt", [FP32, FP16, BF16], ids=lambda f: f.short)
def test_values_start_and_end_at_the_largest(fmt):
    """Index 0 is the most negative number and the last index the largest."""
    assert float(fmt.finite_values(0, 1)[0]) == -fmt.largest
    last = fmt.finite_values(fmt.finite_count - 1)
    assert [float(v) for v in last] == [fmt.largest]


@narrow
def test_windows_of_values_tile_the_format(fmt):
    """Consecutive index ranges concatenate to the whole, and a range past the end is cut off."""
    step = 7919
    parts = [fmt.finite_values(s, s + step) for s in range(0, fmt.finite_count, step)]
    assert np.array_equal(np.concatenate(parts).view(np.uint16), fmt.finite_values().view(np.uint16))


@each
def test_ordinal_numbers_the_values(fmt):
    """Ordinals grow by one from value to value, and both zeros are 0."""
    half = fmt.nonnegative_count
    for start, stop in windows(fmt):
        index = np.arange(start, stop)
        expected = np.where(index < half, index - half + 1, index - half)
        assert np.array_equal(ordinal(fmt.finite_values(start, stop), fmt), expected)


@each
def test_ordinal_of_infinity_is_one_beyond_the_largest(fmt):
    """An infinity is one step beyond the largest number of its sign."""
    ends = ordinal(np.array([-np.inf, -fmt.largest, fmt.largest, np.inf]).astype(fmt.dtype), fmt)
    assert (np.diff(ends)[[0, 2]] == 1).all()
    assert ends[0] == -ends[3] == -fmt.nonnegative_count


@each
@given(data=st.data())
def test_bits_round_trip(fmt, data):
    """The hexadecimal bits of a value lead back to that value, in full width."""
    index = data.draw(st.integers(0, min(fmt.finite_count, 2**63) - 1))
    value = fmt.finite_values(index, index + 1)
    text = fmt.to_bits(float(value[0]))
    assert len(text) == 2 + fmt.bits // 4
    back = np.array([int(text, 16)], dtype=fmt.uint)
    assert np.array_equal(back, value.view(fmt.uint))


@pytest.mark.parametrize(
    ("fmt", "value", "bits"),
    [
        (FP32, 1.5 * 2.0**-20, "0x35c00000"),
        (BF16, 1.0, "0x3f80"),
        (FP16, -2.0, "0xc000"),
        (FP16, -0.0, "0x8000"),
        (FP64, 1.0, "0x3ff0000000000000"),
        (FP32, 2.0**-149, "0x00000001"),
        (BF16, float("inf"), "0x7f80"),
    ],
    ids=str,
)
def test_known_bits(fmt, value, bits):
    """Bit patterns known from the IEEE-754 encodings are reproduced."""
    assert fmt.to_bits(value) == bits


@each
@given(data=st.data())
def test_cast_agrees_with_gfloat(fmt, data):
    """A float is rounded to nearest, ties to even, overflow to infinity, as gfloat does it."""
    value = data.draw(st.floats(allow_nan=False, width=32 if fmt is BF16 else 64))
    want = round_float(GFLOAT[fmt.short], value)
    got = float(fmt.cast([value])[0])
    assert (got, np.signbit(got)) == (want, np.signbit(want))


@pytest.mark.parametrize("fmt", [FP32, FP16, BF16], ids=lambda f: f.short)
def test_cast_breaks_ties_to_even(fmt):
    """Halfway between neighbours the one with the even pattern is taken, at the overflow too."""
    u = fmt.u
    assert fmt.cast([1 + u, 1 + 3 * u]).astype(float).tolist() == [1.0, 1 + 4 * u]
    assert fmt.cast([0.5 * fmt.smallest, 1.5 * fmt.smallest]).astype(float).tolist() == [
        0.0,
        2 * fmt.smallest,
    ]
    threshold = 2.0**fmt.emax * (2 - u)
    below = float(np.nextafter(threshold, 0))
    assert np.isposinf(float(fmt.cast([threshold])[0]))
    assert float(fmt.cast([fmt.largest])[0]) == fmt.largest
    if fmt is not BF16:
        assert float(fmt.cast([below])[0]) == fmt.largest


@pytest.mark.parametrize("fmt", [FP32, FP16], ids=lambda f: f.short)
def test_cast_rounds_once(fmt):
    """A float64 just beside a tie goes to the nearer neighbour, not through float32."""
    u = fmt.u
    values = [1 + u + 2.0**-45, 1 + 3 * u - 2.0**-45, -(1 + u + 2.0**-45)]
    want = [1 + 2 * u, 1 + 2 * u, -(1 + 2 * u)]
    assert fmt.cast(values).astype(float).tolist() == want


@pytest.mark.parametrize(
    ("name", "fmt"),
    [("bf16", BF16), ("bfloat16", BF16), ("FP32", FP32), ("float64", FP64), ("Float16", FP16)],
    ids=str,
)
def test_formats_are_found_by_both_names(name, fmt):
    """A format is found by its short and its long name, in either case."""
    assert find_format(name) is fmt


def test_unknown_format_is_a_usage_error():
    """An unknown format is refused with its name and the known ones."""
    with pytest.raises(UsageError, match=r"'fp8'.*fp64, fp32, fp16, bf16"):
        find_format("fp8")


def test_formats_are_listed_widest_first():
    """The formats by short name come from the widest to the narrowest precision."""
    assert list(FORMATS) == ["fp64", "fp32", "fp16", "bf16"]


@given(value=st.floats(allow_nan=False))
def test_hex_float_round_trips(value):
    """Hexadecimal text reads back to the same float and carries no trailing zeros."""
    text = hex_float(value)
    back = float.fromhex(text)
    assert (back, np.signbit(back)) == (value, np.signbit(value))
    assert "0p" not in text.replace("0x0p", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5 * 2.0**-20, "0x1.8p-20"),
        (-(2.0**-24), "-0x1p-24"),
        (0.0, "0x0p+0"),
        (-0.0, "-0x0p+0"),
        (float("-inf"), "-inf"),
        (float("nan"), "nan"),
    ],
    ids=str,
)
def test_hex_float_shape(value, text):
    """Hexadecimal text has the shape that reports and C99 use."""
    assert hex_float(value) == text


@pytest.mark.slow
def test_every_float32_is_enumerated():
    """The chunks of float32 hold all 4,278,190,080 finite values in order."""
    step, before, total = 1 << 24, None, 0
    for start in range(0, FP32.finite_count, step):
        order = ordinal(FP32.finite_values(start, start + step), FP32)
        total += len(order)
        steps = np.diff(order)
        assert ((steps == 1) | (order[1:] == 0)).all()
        assert before is None or order[0] - before in (0, 1)
        before = order[-1]
    assert total == FP32.finite_count
