"""One candidate on the cases of a problem: its figures, findings and witnesses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from kl_audit.findings import Finding
from kl_audit.formats import Format, hex_float
from kl_audit.quantities.vector_base import Case
from kl_audit.sweep import Target
from kl_audit.ulp import round_to_format


@dataclass(frozen=True)
class Problem:
    """What is computed: the exact reference, and what must hold of any result."""

    name: str
    inputs: tuple[str, ...]  #: in the order of the candidate
    real: tuple[str, ...]  #: those that are rounded to the dtype
    wrt: tuple[str, ...]  #: those differentiated
    reference: Callable[..., Any]
    lower: Callable[[Case], float | None] = lambda case: None
    upper: Callable[[Case], float | None] = lambda case: None
    zero_on_identical: bool = False
    elementwise: bool = False  #: each gradient entry is held by itself, not against the largest


@dataclass(frozen=True)
class CaseWitness:
    """One output element of one case: what came out, and what should have."""

    case: Case
    index: int
    got: float
    truth: Fraction | float | None  #: a float: infinite; None: no value
    ulp: float | None = None


@dataclass
class Tried:
    """One candidate on one target, one output, over all cases."""

    problem: Problem
    name: str
    fmt: Format
    target: Target
    output: str  #: ``value`` or ``gradient``
    wrt: str | None
    skipped: str | None = None
    failed: str | None = None
    result: Format | None = None
    flushes: bool = False  #: the back end is probed to flush subnormal results
    cases: int = 0
    points: int = 0
    max_ulp: float = 0.0
    max_rel: float = 0.0  #: of a gradient: greatest error over the largest true entry
    scale: float = 0.0  #: of a gradient: the largest true entry, where the error is greatest
    cosine: float | None = None
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    negatives: int = 0
    undefined: int = 0
    worst: CaseWitness | None = None
    mode_cases: int = 0  #: cases in which another mode of the back end gives something else
    #: (relative gap, the other mode, its result, where) of the greatest difference
    mode_worst: tuple[float, str, float, CaseWitness] | None = None
    findings: dict[str, Finding] = field(default_factory=dict)
    verdict: str = "pass"
    reason: str | None = None
    witnesses: dict[str, CaseWitness | None] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """Name the quantity, and the gradient where it is one."""
        if self.output == "value":
            return self.problem.name
        return f"{self.problem.name} gradient" + (f" by {self.by}" if self.by else "")

    @property
    def by(self) -> str | None:
        """The input that a gradient is taken by, where there are several."""
        return self.wrt if len(self.problem.inputs) > 1 else None

    def add(self, code: str, text: str, level: str, witness: CaseWitness | None) -> None:
        """Keep the first finding of a code; later ones are counted in the figures."""
        if code in self.findings:
            return
        line = f"{self.what} {self.name} {self.fmt.name} {self.target}: {text}"
        if witness is not None:
            line += f" at {describe(witness, self.fmt)}: got {hex_float(witness.got)}, "
            line += f"want {_want(witness, self.result if self.output == 'value' else self.fmt)}"
        finding = Finding(code, level, f"{line} [{code}]")
        self.findings[code] = finding
        self.witnesses[code] = witness


def _want(w: CaseWitness, fmt: Format | None) -> str:
    """Return the right result, rounded to the format, in hex."""
    if w.truth is None:
        return "no value"
    if isinstance(w.truth, float) or fmt is None:
        return hex_float(float(w.truth))
    return hex_float(round_to_format(w.truth, fmt))


def describe(w: CaseWitness, fmt: Format) -> str:
    """Return a case in words: its name, its inputs where they are few, and the element."""
    parts = []
    for name, value in w.case.inputs.items():
        array = np.ravel(np.asarray(value))
        if len(array) <= 4:
            parts.append(f"{name}=({', '.join(_entry(x) for x in array.tolist())})")
    where = f" [{w.index}]" if w.index else ""
    named = f"{w.case.name}: " if w.case.name else ""
    return f"{named}{', '.join(parts)}{where}" if parts else f"{w.case.name}{where}"


def _entry(x: Any) -> str:
    return hex_float(x) if isinstance(x, float) else str(x)
