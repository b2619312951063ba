"""What came out: one row for each part of a case, back end and mode."""

from __future__ import annotations

from dataclasses import dataclass, field

from kl_audit.cases.criterion import Truth
from kl_audit.cases.model import Case, Cure, Outcome, Part


@dataclass(frozen=True)
class Cured:
    """What a cure gives under the same conditions."""

    cure: Cure
    seen: float | None
    error: float | None  #: relative
    cures: bool
    reason: str | None = None  #: why it could not be measured


@dataclass
class Row:
    """One part on one back end in one mode; ``seen`` and ``truth`` are of the part's measure."""

    case: Case
    part: Part
    backend: str
    mode: str
    outcome: Outcome = "skipped"
    expected: str | None = None  #: None: the case does not say
    reason: str | None = None
    versions: dict[str, str] = field(default_factory=dict)  #: of the back end
    seen: float | None = None
    truth: Truth = None
    error: float | None = None  #: relative
    as_reported: bool | None = None
    value: float | None = None
    value_truth: Truth = None
    gradient: float | None = None
    gradient_truth: Truth = None
    blame: str | None = None  #: ``arithmetic``, ``formula``, ``both``, ``nothing``
    code: str | None = None
    right_holds: bool = True  #: the right number of the file is the certified one
    live: str | None = None  #: the package whose own function this is, with its version
    cures: list[Cured] = field(default_factory=list)

    @property
    def as_expected(self) -> bool:
        """Whether the outcome is the one the case expects; a skipped row always is."""
        if self.outcome == "skipped":
            return True
        return self.right_holds and self.expected in (None, self.outcome)
