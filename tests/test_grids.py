"""Grids: which points they hold, in which order, and what they refuse."""

import math

import numpy as np
import pytest

from kl_audit.errors import UsageError
from kl_audit.formats import BF16, FP16, FP32, FP64
from kl_audit.grids import (
    CHUNK,
    Decades,
    Exhaustive,
    Points,
    Range,
    decade_edges,
    parse_grid,
    read_points,
)

ALL = [FP64, FP32, FP16, BF16]
each = pytest.mark.parametrize("fmt", ALL, ids=lambda f: f.short)
narrow = pytest.mark.parametrize("fmt", [FP16, BF16], ids=lambda f: f.short)


def points(grid, fmt, seed=0):
    """Return all points of a grid, having checked the chunks' lengths and dtype."""
    chunks = list(grid.chunks(fmt, seed))
    assert all(0 < len(c) <= CHUNK and c.dtype == fmt.dtype for c in chunks)
    return np.concatenate(chunks)


def decade_of(value):
    """Return k with 10**k <= value < 10**(k+1), from exact decimal digits."""
    return int(f"{value:.400e}".split("e")[1]) if value < math.inf else None


def positive_values(fmt):
    patterns = np.arange(1, 0x8000, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        values = patterns.view(fmt.dtype).astype(np.float64)
    return values[np.isfinite(values)]


@narrow
def test_exhaustive_covers_every_finite_value_once(fmt):
    """The exhaustive grid is every finite pattern once, ascending, -0 before +0."""
    grid = parse_grid("exhaustive", 2)
    got = points(grid, fmt)
    assert len(got) == grid.count(fmt) == {"fp16": 63_488, "bf16": 65_280}[fmt.short]
    assert len(np.unique(got.view(np.uint16))) == len(got)
    steps = np.diff(got.astype(np.float64))
    zero = np.flatnonzero(steps <= 0)
    assert zero.tolist() == [len(got) // 2 - 1]
    assert np.signbit(got[zero[0] : zero[0] + 2].astype(float)).tolist() == [True, False]


def test_exhaustive_float32_is_a_stream():
    """The exhaustive grid of float32 starts at the most negative number, a chunk at a time."""
    grid = Exhaustive()
    chunks = grid.chunks(FP32, 0)
    first, second = next(chunks), next(chunks)
    assert len(first) == len(second) == CHUNK
    assert float(first[0]) == -float(np.finfo(np.float32).max)
    assert float(second[0]) == float(np.nextafter(first[-1], np.float32(np.inf)))
    assert grid.count(FP32) == 4_278_190_080


@pytest.mark.slow
def test_exhaustive_float32_covers_every_value():
    """The exhaustive grid of float32 goes from number to next number through the whole format."""
    total, last = 0, None
    for chunk in Exhaustive().chunks(FP32, 0):
        whole = chunk if last is None else np.concatenate([last, chunk])
        after = np.nextafter(whole[:-1], np.float32(np.inf))
        assert ((after == whole[1:]) | (whole[1:] == 0)).all()
        total, last = total + len(chunk), chunk[-1:]
    assert total == 4_278_190_080
    assert float(last[0]) == float(np.finfo(np.float32).max)


@each
def test_decade_edges_enclose_the_format(fmt):
    """The edges are the correctly rounded powers of ten around every positive number."""
    edges = decade_edges(fmt)
    assert edges[0] <= fmt.smallest < edges[1]
    assert edges[-2] <= fmt.largest <= edges[-1]
    first = decade_of(fmt.smallest)
    assert edges[:-1] == [float(f"1e{first + i}") for i in range(len(edges) - 1)]


@each
@pytest.mark.parametrize("per_decade", [2, 7, 100])
def test_decades_ascend_and_are_distinct(fmt, per_decade):
    """The points of the decades ascend strictly, and hold no zero and no infinity."""
    got = points(Decades(per_decade), fmt, seed=5).astype(np.float64)
    assert (np.diff(got) > 0).all()
    assert np.isfinite(got).all()
    assert (got != 0).all()


@each
def test_decades_have_the_count_in_every_decade(fmt):
    """Every decade holds per_decade points, half of each sign, where the format has that many."""
    got = points(Decades(40), fmt, seed=1).astype(np.float64)
    edges = decade_edges(fmt)
    for sign in (1, -1):
        side = sign * got
        counts = np.histogram(side[side > 0], bins=[*edges[:-1], math.inf])[0]
        inner = counts[2:-1]
        assert (inner == 20).all(), counts
        assert (counts <= 20).all()
        assert (counts >= 1).all(), counts
    assert len(got) <= Decades(40).count(fmt)


@narrow
def test_a_small_decade_is_taken_whole(fmt):
    """A decade with fewer values than asked for is taken whole, to the first and last number."""
    got = points(Decades(10**6), fmt).astype(np.float64)
    every = positive_values(fmt)
    assert np.array_equal(got, np.concatenate([-every[::-1], every]))


@each
def test_decades_depend_on_the_seed_alone(fmt):
    """The same seed gives the same points and another seed gives others."""
    grid = Decades(30)
    first = points(grid, fmt, seed=3)
    assert np.array_equal(first, points(Decades(30), fmt, seed=3))
    assert not np.array_equal(first, points(grid, fmt, seed=4))


def test_decades_are_log_uniform():
    """Within a decade the points are spread evenly in the logarithm, not in the value."""
    got = points(Decades(4000), FP64, seed=2)
    logs = np.log10(got[(got >= 1e-3) & (got < 1e-2)]) + 3
    counts = np.histogram(logs, bins=10, range=(0, 1))[0]
    assert counts.sum() == 2000
    assert (np.abs(counts - 200) < 80).all(), counts  # six standard deviations


def test_decades_of_many_points_are_split_without_repetition():
    """More draws than a chunk in one decade still give distinct, ascending points."""
    per_decade = 2 * CHUNK + 2 * 1000
    got, edges = points(Decades(per_decade), FP16, seed=0).astype(float), decade_edges(FP16)
    every = positive_values(FP16)
    assert np.array_equal(got, np.concatenate([-every[::-1], every]))
    chunks = Decades(per_decade).chunks(FP32, 0)
    largest = [next(chunks).astype(float) for _ in range(3)]
    joined = np.concatenate(largest)
    assert (np.diff(joined) > 0).all()
    top = -joined[joined <= -decade_edges(FP32)[-2]]
    assert len(top) == per_decade // 2
    assert edges[-1] == 1e5


@pytest.mark.parametrize("text", ["-1.1:0.3:1000", "-3:7:2", "0.1:0.7:3", "1e-6:0.9:70000"])
def test_range_ends_are_exact(text):
    """The first and last points of a range are the given ends, the others evenly between."""
    low, high, n = (float(p) for p in text.split(":"))
    got = points(parse_grid(text, 2), FP64)
    assert (got[0], got[-1], len(got)) == (low, high, n)
    assert np.allclose(np.diff(got), (high - low) / (n - 1), rtol=1e-6)


@pytest.mark.parametrize("text", ["1e-6:1:1000:log", "-1e3:-1e-7:50:log", "3e-5:0.7:70001:log"])
def test_log_range_ends_are_exact(text):
    """A log range runs from end to end exactly, ascending, with a constant ratio, on each side."""
    low, high, n = (float(p) for p in text.split(":")[:3])
    got = points(parse_grid(text, 2), FP64)
    assert (got[0], got[-1], len(got)) == (low, high, n)
    assert (np.diff(got) > 0).all()
    assert np.allclose(got[1:] / got[:-1], (high / low) ** (1 / (n - 1)), rtol=1e-9)


def test_range_is_rounded_to_the_format():
    """The points of a range are values of the format, its ends rounded to nearest."""
    got = points(Range(0.1, 0.7, 5), FP32)
    assert got[[0, -1]].tolist() == [np.float32(0.1), np.float32(0.7)]


def test_range_of_one_point():
    """A range of a single point is its lower end, also where the ends agree."""
    assert points(parse_grid("0.5:2:1", 2), FP64).tolist() == [0.5]
    assert points(parse_grid("0.5:0.5:1", 2), FP64).tolist() == [0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2:1:10", "reversed"),
        ("1:1:2", "no extent"),
        ("-1e-3:-1:9:log", "reversed"),
        ("0:1:0", "is empty: N is 0"),
        ("0:1:-3", "is empty"),
        ("0:1:10:log", "one sign"),
        ("-1:1:10:log", "one sign"),
        ("0:1:x", "bad grid '0:1:x'"),
        ("0:1", "bad grid"),
        ("0:1:2:lin", "bad grid"),
        ("0:inf:3", "bad grid"),
        ("nan:1:3", "bad grid"),
        ("0:1:2.5", "bad grid"),
        ("nonsense", "no grid or file 'nonsense'"),
        ("1,,2", "no grid or file"),
        ("1,inf", "no grid or file"),
    ],
)
def test_bad_grids_are_usage_errors(text, message):
    """A reversed, empty or unreadable grid is refused with its text and the reason."""
    with pytest.raises(UsageError, match=message) as caught:
        parse_grid(text, 10)
    assert text in str(caught.value)


def test_too_few_per_decade_is_a_usage_error():
    """Fewer than one value of each sign per decade is refused."""
    with pytest.raises(UsageError, match="--per-decade 1"):
        parse_grid("decades", 1)


def test_list_of_values_is_sorted():
    """A comma-separated list, decimal or hexadecimal, becomes ascending points."""
    grid = parse_grid("1, -0x1.8p-20,0.25,1e-3", 2)
    assert grid.count(FP64) == 4
    assert points(grid, FP64).tolist() == [-1.5 * 2.0**-20, 1e-3, 0.25, 1.0]


def test_values_beyond_the_format_are_a_usage_error():
    """A finite value that overflows the format is refused with the format's largest number."""
    grid = parse_grid("1,7e4", 2)
    assert points(grid, FP32)[-1] == 7e4
    with pytest.raises(UsageError, match=r"70000 is beyond float16 \(largest 65504\)"):
        points(grid, FP16)
    with pytest.raises(UsageError, match="beyond float16"):
        points(Range(0, 1e6, 5), FP16)


def test_file_of_values(tmp_path):
    """A file gives its values, decimal or hex, and its comments and empty lines are skipped."""
    path = tmp_path / "values.txt"
    path.write_text("# dumped\n0.5\n\n-0x1p-3  # one eighth\n2e-3\n")
    grid = parse_grid(str(path), 2)
    assert isinstance(grid, Points)
    assert points(grid, FP64).tolist() == [-0.125, 2e-3, 0.5]


def test_file_of_rows(tmp_path):
    """A file's rows of several values, by comma or blank, are kept in their order."""
    path = tmp_path / "pairs.csv"
    path.write_text("1,2\n-3 4\n")
    assert read_points(path).values == ((1.0, 2.0), (-3.0, 4.0))


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("1\nabc\n3\n", ":2:", "'abc' is not a finite number"),
        ("1\n# fine\n\nnan\n", ":4:", "not a finite number"),
        ("inf\n", ":1:", "not a finite number"),
        ("0x1p9999\n", ":1:", "not a finite number"),
        ("1 2\n3\n", ":2:", "1 values, expected 2"),
        ("# nothing\n\n", ":", "no values"),
        ("", ":", "no values"),
    ],
)
def test_bad_file_is_a_usage_error_with_its_line(tmp_path, text, where, message):
    """A file with text, with non-finite or uneven rows is refused by file name and line number."""
    path = tmp_path / "values.txt"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        parse_grid(str(path), 2)
    assert str(caught.value).startswith(f"{path}{where}")
    assert message in str(caught.value)


def test_binary_file_is_a_usage_error(tmp_path):
    """A file that is no text is refused by name."""
    path = tmp_path / "values.bin"
    path.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(UsageError, match="cannot be read as text"):
        parse_grid(str(path), 2)
