"""Where a quantity is measured: grids of log-ratios, as streams of ascending chunks.

A grid yields arrays of the format's dtype, each ascending, each at most CHUNK long, the whole
ascending too: neighbours in the stream are neighbours on the axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from kl_audit.errors import UsageError
from kl_audit.formats import FloatArray, Format, ordinal

#: Points evaluated at a time: large enough for vector kernels and threads, small enough for caches.
CHUNK = 1 << 16

#: The decades in which trainers' log-ratios live, and in which a law has to hold (S5.6).
CORE_LOW, CORE_HIGH = 1e-6, 1.0

#: More than these would sample values that a float32 does not have.
MOST_POINTS, MOST_PER_DECADE = 1 << 32, 50_000_000

HELP = "exhaustive, decades, LO:HI:N (evenly spaced), LO:HI:N:log, a comma-separated list, or a file"


class Grid(Protocol):
    """A set of log-ratios."""

    @property
    def kind(self) -> str:
        """The word for it in reports."""

    def count(self, fmt: Format) -> int:
        """How many points, exactly or (for progress) nearly."""

    def chunks(self, fmt: Format, seed: int) -> Iterator[FloatArray]:
        """Yield the points, ascending."""


@dataclass(frozen=True)
class Exhaustive:
    """Every finite value of a format, both zeros included."""

    kind: str = "exhaustive"

    def count(self, fmt: Format) -> int:
        """See ``Grid``."""
        return fmt.finite_count

    def chunks(self, fmt: Format, seed: int) -> Iterator[FloatArray]:
        """See ``Grid``."""
        for start in range(0, fmt.finite_count, CHUNK):
            yield fmt.finite_values(start, start + CHUNK)


def decade_edges(fmt: Format) -> list[float]:
    """Return 10**k from at or below the smallest value of the format to above its largest."""
    low = math.floor(math.log10(fmt.smallest))
    high = math.ceil(math.log10(fmt.largest))
    return [float(f"1e{k}") if k <= 308 else math.inf for k in range(low, high + 1)]


@dataclass(frozen=True)
class Decades:
    """``per_decade`` log-uniform values, half of each sign, in every decade of the format.

    A decade that has no more values than that is taken whole.  Values are distinct.
    """

    per_decade: int
    kind: str = "decades"

    def count(self, fmt: Format) -> int:
        """See ``Grid``."""
        return self.per_decade * (len(decade_edges(fmt)) - 1)

    def chunks(self, fmt: Format, seed: int) -> Iterator[FloatArray]:
        """See ``Grid``."""
        yield from _coalesce(self._strata(fmt, seed))

    def _strata(self, fmt: Format, seed: int) -> Iterator[FloatArray]:
        edges = decade_edges(fmt)
        bands = range(len(edges) - 1)
        negative, positive = self.per_decade // 2, self.per_decade - self.per_decade // 2
        for band in reversed(bands):
            for part in reversed(list(_parts(negative))):
                yield -_stratum(fmt, edges, band, part, (seed, 1, band))[::-1]
        for band in bands:
            for part in _parts(positive):
                yield _stratum(fmt, edges, band, part, (seed, 0, band))


def _parts(n: int) -> Iterator[tuple[int, int, int]]:
    """Split n draws from a band into (index, parts, draws) of at most a chunk each."""
    parts = max(1, -(-n // CHUNK))
    for i in range(parts):
        yield i, parts, n * (i + 1) // parts - n * i // parts


def _stratum(
    fmt: Format, edges: list[float], band: int, part: tuple[int, int, int], key: tuple[int, ...]
) -> FloatArray:
    """Draw distinct positive values, ascending, log-uniform over one part of one decade."""
    i, parts, n = part
    low, high = max(edges[band], fmt.smallest), min(edges[band + 1], fmt.largest)
    a, b = math.log(low), math.log(high)
    step = (b - a) / parts
    first, last = a + i * step, (b if i == parts - 1 else a + (i + 1) * step)
    # The part as a range of bit patterns, so that no value lies outside or is in two parts.
    start = _first_at_least(fmt, low if i == 0 else math.exp(first))
    stop = _first_at_least(fmt, high if i == parts - 1 else math.exp(last))
    if i == parts - 1 and high == fmt.largest:
        stop += 1
    if stop - start <= n:
        return _from_patterns(fmt, np.arange(start, stop, dtype=np.int64))
    rng = np.random.default_rng(np.random.SeedSequence([*key, i]))
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < n:
        values = fmt.cast(np.exp(rng.uniform(first, last, n - len(chosen) + 8)))
        drawn = np.clip(ordinal(values, fmt), start, stop - 1)
        chosen = np.unique(np.concatenate([chosen, drawn]))
    if len(chosen) > n:
        chosen = np.sort(rng.permutation(chosen)[:n])
    return _from_patterns(fmt, chosen)


def _first_at_least(fmt: Format, value: float) -> int:
    """Return the bit pattern of the least value of the format that is >= a positive value."""
    cast = fmt.cast([value])
    pattern = int(ordinal(cast, fmt)[0])
    return pattern if float(cast[0]) >= value else pattern + 1


def _from_patterns(fmt: Format, patterns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> FloatArray:
    return patterns.astype(fmt.uint).view(fmt.dtype)


def _coalesce(parts: Iterator[FloatArray]) -> Iterator[FloatArray]:
    """Join short arrays up to a chunk."""
    held: list[FloatArray] = []
    size = 0
    for part in parts:
        if not len(part):
            continue
        if held and size + len(part) > CHUNK:
            yield np.concatenate(held)
            held, size = [], 0
        held.append(part)
        size += len(part)
    if held:
        yield np.concatenate(held)


@dataclass(frozen=True)
class Range:
    """n values from low to high, evenly spaced or geometrically."""

    low: float
    high: float
    n: int
    geometric: bool = False
    kind: str = "range"

    def count(self, fmt: Format) -> int:
        """See ``Grid``."""
        return self.n

    def chunks(self, fmt: Format, seed: int) -> Iterator[FloatArray]:
        """See ``Grid``; values are rounded to the format, so that some may coincide."""
        for start in range(0, self.n, CHUNK):
            t = np.arange(start, min(start + CHUNK, self.n)) / max(self.n - 1, 1)
            if self.geometric:
                sign = math.copysign(1.0, self.low)
                a, b = math.log(abs(self.low)), math.log(abs(self.high))
                values = sign * np.exp(a + (b - a) * t)
            else:
                values = self.low * (1 - t) + self.high * t  # HIGH - LOW may overflow
            # the ends exactly as given
            values = np.where(t == 0, self.low, np.where(t == 1, self.high, values))
            yield _finite(fmt, values, f"{self.low:g}:{self.high:g}:{self.n}")


@dataclass(frozen=True)
class Points:
    """Given values; rows of several for a quantity of several inputs."""

    values: tuple[tuple[float, ...], ...]
    origin: str
    kind: str = "points"

    def count(self, fmt: Format) -> int:
        """See ``Grid``."""
        return len(self.values)

    def chunks(self, fmt: Format, seed: int) -> Iterator[FloatArray]:
        """See ``Grid``."""
        ordered = np.sort(np.array([row[0] for row in self.values]))
        for start in range(0, len(ordered), CHUNK):
            yield _finite(fmt, ordered[start : start + CHUNK], self.origin)


def _finite(fmt: Format, values: np.ndarray[tuple[int], np.dtype[np.float64]], origin: str) -> FloatArray:
    out = fmt.cast(values)
    beyond = ~np.isfinite(out.astype(np.float64))
    if beyond.any():
        raise UsageError(
            f"grid {origin}: {values[beyond][0]:g} is beyond {fmt.name} "
            f"(largest {fmt.largest:g}); give values within it."
        )
    return out


def parse_grid(text: str, per_decade: int) -> Grid:
    """Return the grid that a command line names; raises UsageError."""
    if per_decade < 2:
        raise UsageError(f"--per-decade {per_decade}: at least 2 (one value of each sign).")
    if per_decade > MOST_PER_DECADE:
        raise UsageError(f"--per-decade {per_decade}: at most {MOST_PER_DECADE:,}.")
    if text == "exhaustive":
        return Exhaustive()
    if text == "decades":
        return Decades(per_decade)
    path = Path(text)
    try:
        if text and path.is_dir():
            raise UsageError(f"grid '{text}' is a directory. A grid is {HELP}.")
        is_file = bool(text) and path.exists()
    except (OSError, ValueError):  # too long for a name, or not one
        is_file = False
    if is_file:
        return read_points(path)
    if ":" in text:
        return _parse_range(text)
    try:
        values = tuple((_number(part),) for part in text.split(","))
    except ValueError:
        raise UsageError(f"no grid or file '{text[:80]}'. A grid is {HELP}.") from None
    return Points(values, text)


def _number(text: str) -> float:
    text = text.strip()
    if "_" in text or not text.isascii():
        raise ValueError(text)
    value = float.fromhex(text) if "0x" in text.lower() else float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _parse_range(text: str) -> Range:
    parts = text.split(":")
    geometric = len(parts) == 4 and parts[3] == "log"
    try:
        if not (len(parts) == 3 or geometric):
            raise ValueError
        low, high, n = _number(parts[0]), _number(parts[1]), int(parts[2])
    except ValueError:
        raise UsageError(
            f"bad grid '{text}'. Expected LO:HI:N or LO:HI:N:log, e.g. 1e-6:1:1000:log."
        ) from None
    if n > MOST_POINTS:
        raise UsageError(f"grid '{text[:80]}': N is beyond {MOST_POINTS:,}, the values of a float32.")
    if n < 1:
        raise UsageError(f"grid '{text}' is empty: N is {n}, expected at least 1.")
    if low > high or (low == high and n > 1):
        raise UsageError(f"grid '{text}' is reversed or has no extent: LO must be below HI.")
    if geometric and low * high <= 0:
        raise UsageError(f"grid '{text}': a log grid needs LO and HI of one sign, and not 0.")
    return Range(low, high, n, geometric)


def read_points(path: Path) -> Points:
    """Read a file of values, one row a line, decimal or hex; ``#`` starts a comment."""
    rows: list[tuple[float, ...]] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as text ({error}).") from None
    for number, line in enumerate(lines, 1):
        words = line.split("#", 1)[0].replace(",", " ").split()
        if not words:
            continue
        try:
            row = tuple(_number(w) for w in words)
        except (ValueError, OverflowError):
            raise UsageError(
                f"{path}:{number}: '{line.strip()}' is not a finite number "
                "(expected one decimal or hex float a line, e.g. 1e-6 or 0x1.8p-20)."
            ) from None
        if rows and len(row) != len(rows[0]):
            raise UsageError(f"{path}:{number}: {len(row)} values, expected {len(rows[0])} as above.")
        rows.append(row)
    if not rows:
        raise UsageError(f"{path}: no values in it (expected one decimal or hex float a line).")
    return Points(tuple(rows), str(path))
