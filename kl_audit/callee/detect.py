"""Which back ends a function accepts, and what it returns for each format."""

from __future__ import annotations

from collections.abc import Iterable

from kl_audit.backends.base import Backend, CandidateError, Unavailable
from kl_audit.callee.arguments import Binding
from kl_audit.callee.call import candidate
from kl_audit.callee.capture import quiet
from kl_audit.callee.facts import Detection, Probe
from kl_audit.callee.load import Loaded
from kl_audit.callee.probe import FEW, Make, ordinary, probe
from kl_audit.formats import FP32, Format, find_format


def result_formats(
    loaded: Loaded, binding: Binding, found: Probe, backend: Backend, formats: Iterable[Format],
    device: str = "cpu",
) -> dict[str, Format | str]:  # fmt: skip
    """Return, by the name of the input's format, the format returned, or the reason why there is none."""
    fn = candidate(loaded, binding, found.output, found.plan)
    answers: dict[str, Format | str] = {}
    for fmt in formats:
        columns = tuple(c[:FEW] for c in ordinary(binding.inputs, fmt))
        try:
            with quiet():
                result, _ = backend.array_evaluator(fn, backend.modes[0].name, device)(*columns)
        except (CandidateError, Unavailable) as error:
            answers[fmt.name] = str(error)
        else:
            answers[fmt.name] = find_format(result.dtype.name)
    return answers


def detect_backends(
    loaded: Loaded, binding: Binding, backends: Iterable[Backend], make: Make | None = None,
    output: str | None = None, fmt: Format = FP32, points: int = 0, length: int = 1 << 16,
    device: str = "cpu",
) -> list[Detection]:  # fmt: skip
    """Probe a function on each back end; a back end that it does not accept has the reason.

    Raises UsageError for an output that must be named, or that is not there.
    """
    found = []
    for backend in backends:
        try:
            result = probe(loaded, binding, backend, make, output, fmt, None, points, length, device)
        except (CandidateError, Unavailable) as error:
            found.append(Detection(backend.name, None, str(error)))
        else:
            found.append(Detection(backend.name, result, None))
    return found
