"""What the reader asked for, as text and resolved, and the job that comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kl_audit.audit.at import Given
from kl_audit.audit.log_ratio import Audited, Task, audit
from kl_audit.audit.subject import Subject
from kl_audit.audit.vectors import VectorAudited, VectorTask, audit_vectors
from kl_audit.callee import Loaded
from kl_audit.checks import Bounds
from kl_audit.expression import Expression
from kl_audit.formats import Format
from kl_audit.sweep import Listener, Target


@dataclass(frozen=True)
class Request:
    """What the reader asked for, as text."""

    target: str | None
    expr: str | None = None
    quantity: str | None = None
    truth: str | None = None
    args: str | None = None
    with_: tuple[str, ...] = ()
    output: str | None = None
    at: tuple[str, ...] = ()
    only: str | None = None
    against: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    device: str = "cpu"
    dtypes: tuple[str, ...] = ()
    grid: str | None = None
    per_decade: int | None = None
    sizes: tuple[int, ...] = ()
    clamp: str = "auto"
    max_rel: float | None = 0.01
    max_ulp: float | None = None
    seed: int = 0
    top: int = 5
    explain: bool = True


@dataclass
class Job:
    """An audit that is ready to run."""

    task: Task | VectorTask
    seed: int

    @property
    def subject(self) -> Subject:
        """What is audited."""
        return self.task.subject

    def run(self, listener: Listener) -> Iterator[Audited | VectorAudited]:
        """Yield the rows of the audit as they are finished."""
        if isinstance(self.task, Task):
            yield from audit(self.task, listener)
        else:
            yield from audit_vectors(self.task, listener)


@dataclass(frozen=True)
class Asked:
    """A request with its names resolved, but for what the subject ought to compute."""

    request: Request
    expression: Expression | None  #: one of these two is there
    loaded: Loaded | None
    given: Given | None  #: inputs by --at
    constants: dict[str, Any]
    targets: tuple[Target, ...]
    formats: tuple[Format, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """What is audited of it: value, gradient, or both."""
        only = self.request.only
        return ("value", "gradient") if only in (None, "all") else (only,)

    @property
    def bounds(self) -> Bounds:
        """The bounds asked for."""
        return Bounds(self.request.max_ulp, self.request.max_rel)
