"""What was found out about a function before it is audited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kl_audit.callee.call import ShapePlan

Flag = Literal[
    "accepts", "shape", "format", "scalar", "prints", "warns", "mutates", "random", "state", "mixes",
    "slow", "detached", "converts", "nonfinite",
]  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """One thing found out, in one line."""

    flag: Flag
    text: str
    blocks: bool = False  #: a row of measurements would mean nothing


@dataclass(frozen=True)
class Probe:
    """How a function is to be called on the arrays of one back end, and what it does then."""

    backend: str
    plan: ShapePlan
    output: str | None  #: where the result is in what it returns; give this to ``candidate``
    result_format: str  #: for inputs of the format probed
    returns_scalar: bool
    elements: int  #: of the calls that ``seconds`` was measured on
    seconds: float  #: for that many elements, in one call or (pointwise) in as many
    facts: tuple[Fact, ...]

    def fact(self, flag: Flag) -> Fact | None:
        """Return the fact with a flag, if it was found."""
        return next((f for f in self.facts if f.flag == flag), None)

    def has(self, flag: Flag) -> bool:
        """Whether a flag was found."""
        return self.fact(flag) is not None

    @property
    def reason(self) -> str | None:
        """Why no row can be judged; None if it can."""
        return next((f.text for f in self.facts if f.blocks), None)

    def projected(self, points: int, length: int = 1 << 16) -> float:
        """Return the least time, in seconds, for so many points in arrays of a length."""
        return projected(self.seconds, self.elements, self.plan.pointwise, points, length)


def projected(seconds: float, elements: int, pointwise: bool, points: int, length: int) -> float:
    """Return seconds for points: calls of ``length`` elements cost at least what short ones do."""
    calls = points / elements if pointwise else -(-points // length)
    return seconds * calls


@dataclass(frozen=True)
class Detection:
    """Whether a function accepts the arrays of a back end."""

    backend: str
    probe: Probe | None
    reason: str | None  #: why not, in one line

    @property
    def accepted(self) -> bool:
        """Whether it does."""
        return self.probe is not None
