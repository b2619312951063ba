"""The binary floating-point formats, and their values in order.

Precision ``p`` counts the hidden bit; ``u = 2**-p`` is the unit roundoff.  Every finite value of a
format has an *index*: 0 is the largest negative number, then up through -0, +0 and the positive
numbers.  Indexed access is what makes an exhaustive sweep a stream of chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from kl_audit.errors import unknown

#: An array whose dtype is one of the formats (bfloat16 is not known to NumPy's own types).
FloatArray = npt.NDArray[Any]
Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """One IEEE-754 style binary interchange format."""

    name: str  #: long name, as in reports: ``bfloat16``
    short: str  #: command-line name: ``bf16``
    bits: int  #: storage width
    precision: int  #: significand bits, hidden bit included (p)
    emax: int  #: exponent of the largest finite number, which is 2**emax * (2 - 2**(1-p))

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.emax

    @property
    def u(self) -> float:
        """Unit roundoff, 2**-p."""
        return 2.0**-self.precision

    @property
    def largest(self) -> float:
        """Largest finite number."""
        return (2.0 - 2.0 ** (1 - self.precision)) * 2.0**self.emax

    @property
    def smallest_normal(self) -> float:
        """Smallest positive normal number."""
        return 2.0**self.emin

    @property
    def smallest(self) -> float:
        """Smallest positive (subnormal) number."""
        return 2.0 ** (self.emin - self.precision + 1)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype (from ml_dtypes for bfloat16)."""
        return np.dtype(ml_dtypes.bfloat16 if self.name == "bfloat16" else self.name)

    @cached_property
    def uint(self) -> np.dtype[Any]:
        """The unsigned integer type of the same width."""
        return np.dtype(f"uint{self.bits}")

    @property
    def nonnegative_count(self) -> int:
        """How many finite values have sign bit 0 (+0 included)."""
        return int(self.emax * 2 + 1) << (self.precision - 1)

    @property
    def finite_count(self) -> int:
        """How many finite values there are, both zeros counted: 65,280 for bfloat16."""
        return 2 * self.nonnegative_count

    def finite_values(self, start: int = 0, stop: int | None = None) -> FloatArray:
        """Return the finite values with index in ``[start, stop)``, ascending (-0 before +0)."""
        half = np.uint64(self.nonnegative_count)
        stop = self.finite_count if stop is None else min(stop, self.finite_count)
        # unsigned: float64 has more values than int64 counts
        index = np.uint64(start) + np.arange(max(stop - start, 0), dtype=np.uint64)
        sign = np.uint64(1 << (self.bits - 1))
        magnitude = np.where(index < half, half - np.uint64(1) - index, index - half)
        pattern = np.where(index < half, magnitude | sign, magnitude)
        values: FloatArray = pattern.astype(self.uint).view(self.dtype)
        return values

    def cast(self, values: npt.ArrayLike) -> FloatArray:
        """Round float64 values to the format (to nearest, ties to even); overflow gives inf."""
        wide = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            # ml_dtypes goes from float64 to bfloat16 by way of float32, and would round twice
            return (_to_odd(wide) if self.name == "bfloat16" else wide).astype(self.dtype)

    def to_bits(self, value: float) -> str:
        """Return the bit pattern of a value of the format: ``0x35c00000``."""
        pattern = int(self.cast([value]).view(self.uint)[0])
        return f"0x{pattern:0{self.bits // 4}x}"


def _to_odd(wide: Float64Array) -> npt.NDArray[np.float32]:
    """Convert to float32 rounding to odd, after which rounding to fewer bits is right (Boldo)."""
    narrow = wide.astype(np.float32)
    back = narrow.astype(np.float64)
    inexact = np.isfinite(wide) & (back != wide)
    pattern = narrow.view(np.int32) - (np.abs(back) > np.abs(wide))
    odd: npt.NDArray[np.float32] = np.where(inexact, pattern | 1, pattern).astype(np.int32).view(np.float32)
    return odd


FP64 = Format("float64", "fp64", 64, 53, 1023)
FP32 = Format("float32", "fp32", 32, 24, 127)
FP16 = Format("float16", "fp16", 16, 11, 15)
BF16 = Format("bfloat16", "bf16", 16, 8, 127)

#: All formats, by command-line name, widest first.
FORMATS: dict[str, Format] = {f.short: f for f in (FP64, FP32, FP16, BF16)}
_BY_NAME = FORMATS | {f.name: f for f in FORMATS.values()}


def find_format(name: str) -> Format:
    """Return the format called ``name`` (``bf16`` or ``bfloat16``); raises UsageError."""
    try:
        return _BY_NAME[name.lower()]
    except KeyError:
        raise unknown("dtype", name, list(FORMATS), " (also float64, float32, float16, bfloat16)") from None


def hex_float(value: float) -> str:
    """Return ``value`` in C99 hexadecimal without trailing zeros: ``0x1.8p-20``, ``-inf``."""
    text = float(value).hex()
    if "p" not in text:
        return text
    mantissa, exponent = text.split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{exponent}"


def ordinal(values: FloatArray, fmt: Format) -> npt.NDArray[np.int64]:
    """Map values to integers in which neighbours differ by 1 and both zeros are 0.

    Infinities are one step beyond the largest number.  NaN has no place in the order: the caller
    masks it.  A 64-bit pattern without its sign fits in int64.
    """
    pattern = np.ascontiguousarray(values, dtype=fmt.dtype).view(fmt.uint).astype(np.uint64)
    sign = np.uint64(1 << (fmt.bits - 1))
    magnitude = (pattern & ~sign).astype(np.int64)
    return np.where(pattern & sign != 0, -magnitude, magnitude)
