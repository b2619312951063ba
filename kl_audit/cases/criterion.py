"""What counts as reproduced, and which outcome is expected on which versions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import get_args

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from kl_audit.cases.model import Outcome
from kl_audit.errors import UsageError
from kl_audit.formats import Format
from kl_audit.ulp import overflow_threshold

Truth = Fraction | float | None
OUTCOMES: tuple[str, ...] = get_args(Outcome)
FORMS = (
    "'as reported', 'negative', 'zero', 'nan', 'infinite', 'non-finite', 'off by X' (or X%), "
    "'above X', 'below X'"
)
_COMPARED = re.compile(r"^(off by|above|below)\s+(\S+?)(%?)$")
#: A number that is called right has to have digits enough for this.
COARSEST = 0.05
_SELECTOR = re.compile(r"^(?P<name>\*|[a-z]+(?:-[a-z]+)?)\s*(?P<versions>[<>=!~].*)?$")


def in_format(truth: Truth, fmt: Format) -> Truth:
    """Return a truth, infinite where it rounds to infinity in the format."""
    if isinstance(truth, Fraction) and abs(truth) >= overflow_threshold(fmt):
        return math.inf if truth > 0 else -math.inf
    return truth


def relative_error(got: float, truth: Truth) -> float | None:
    """Return |got - truth| / |truth|; inf where only one is finite, None where there is no truth."""
    if truth is None or (isinstance(truth, float) and math.isnan(truth)):
        return None
    if math.isnan(got):
        return math.inf
    if isinstance(truth, float) or math.isinf(got):
        return 0.0 if got == truth else math.inf
    if truth == 0:
        return 0.0 if got == 0 else math.inf
    try:
        return float(abs(Fraction(got) - truth) / abs(truth))
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Criterion:
    """A condition on a number: ``holds(got, truth, reported)``."""

    text: str
    test: Callable[[float, Truth, str | None], bool]

    def holds(self, got: float, truth: Truth, reported: str | None) -> bool:
        """Whether the number is what the report is about."""
        return self.test(got, truth, reported)


def _off(limit: float) -> Callable[[float, Truth, str | None], bool]:
    def test(got: float, truth: Truth, reported: str | None) -> bool:
        error = relative_error(got, truth)
        return error is not None and error > limit

    return test


_WORDS: dict[str, Callable[[float, Truth, str | None], bool]] = {
    "as reported": lambda got, truth, reported: reported is not None and is_reported(got, reported),
    "negative": lambda got, truth, reported: got < 0,
    "zero": lambda got, truth, reported: got == 0,
    "nan": lambda got, truth, reported: math.isnan(got),
    "infinite": lambda got, truth, reported: math.isinf(got),
    "non-finite": lambda got, truth, reported: not math.isfinite(got),
}


def parse_criterion(text: str) -> Criterion:
    """Read ``reproduced_when``; raises UsageError."""
    if text in _WORDS:
        return Criterion(text, _WORDS[text])
    found = _COMPARED.match(text)
    try:
        if found is None:
            raise ValueError(text)
        limit = _number(found[2]) / (100 if found[3] else 1)
    except ValueError:
        raise UsageError(f"'{text}' is no condition, expected {FORMS}.") from None
    if found[1] == "off by":
        return Criterion(text, _off(limit))
    if found[1] == "above":
        return Criterion(text, lambda got, truth, reported: got > limit)
    return Criterion(text, lambda got, truth, reported: got < limit)


def _number(text: str) -> float:
    return float.fromhex(text) if "x" in text.lower() else float(text)


def is_reported(got: float, reported: str) -> bool:
    """Whether a number is the reported one, to one in the last digit that the report gives.

    A report rounds or truncates.  Where it has few digits a unit may be as great as the number: no more
    than half of it is let pass, and of 0 nothing.
    """
    want = _number(reported)
    if math.isnan(want) or math.isinf(want) or "x" in reported.lower():
        return got == want or (math.isnan(got) and math.isnan(want))
    room = min(float(last_digit(reported)), abs(want) / 2)
    return math.isfinite(got) and abs(got - want) <= room * (1 + 2.0**-20)


def last_digit(text: str) -> Fraction:
    """Return what one in the last digit of a decimal number is worth: 1/100 of '1.50'."""
    mantissa, _, exponent = text.lower().partition("e")
    return Fraction(10) ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def is_right(truth: Truth, right: str) -> bool:
    """Whether a certified truth rounds to the number that a file calls right, to the digits given."""
    if truth is None:
        return right.lower() == "nan"
    if isinstance(truth, float):
        return is_reported(truth, right)
    if "n" in right.lower():
        return False
    want = Fraction(float.fromhex(right)) if "x" in right.lower() else Fraction(right)
    if "x" in right.lower() or want == 0:
        return truth == want
    return abs(truth - want) <= min(last_digit(right) / 2, Fraction(COARSEST) * abs(want))


@dataclass(frozen=True)
class Selector:
    """Which rows an expectation is for: ``torch``, ``torch-compile >=2.14``, ``jit``, ``*``."""

    name: str
    versions: SpecifierSet

    def matches(self, backend: str, mode: str, version: str | None) -> bool:
        """Whether a row of this back end (in this version) and mode is meant."""
        if self.name not in ("*", backend, mode, f"{backend}-{mode}"):
            return False
        if not self.versions:
            return True
        try:
            return version is not None and self.versions.contains(Version(version), prereleases=True)
        except InvalidVersion:
            return False


def parse_selector(text: str) -> Selector:
    """Read a selector; raises UsageError."""
    found = _SELECTOR.match(text.strip())
    try:
        if found is None:
            raise InvalidSpecifier(text)
        return Selector(found["name"], SpecifierSet(found["versions"] or ""))
    except InvalidSpecifier:
        raise UsageError(
            f"'{text}' selects nothing, expected a back end, BACKEND-MODE, a mode or *, and a version "
            "condition: 'torch-compile >=2.14'."
        ) from None


def expected_outcome(
    expected: str | dict[str, str], backend: str, mode: str, version: str | None
) -> str | None:
    """Return the outcome that is expected of a row: that of the first selector that matches."""
    if isinstance(expected, str):
        return expected
    for text, outcome in expected.items():
        if parse_selector(text).matches(backend, mode, version):
            return outcome
    return None
