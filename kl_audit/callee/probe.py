"""Try a function out: which shapes it takes, what it returns, and what else it does.

Everything runs with its output kept from the terminal, on fresh arrays, so that nothing here depends on what
an earlier call did to its inputs.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kl_audit.backends.base import Backend, CandidateError, Unavailable
from kl_audit.callee.arguments import Binding
from kl_audit.callee.call import SHAPES, Mask, ShapePlan, candidate, invoke
from kl_audit.callee.capture import Heard, quiet
from kl_audit.callee.facts import Fact, Probe, projected
from kl_audit.callee.load import Loaded
from kl_audit.callee.outputs import Taken, WrongSizeError, resolve
from kl_audit.formats import FP32, FloatArray, Format, find_format

#: Gives the operations of a back end, and columns as its own arrays: ``Backend.arrays`` by default.
Make = Callable[[Any, tuple[FloatArray, ...]], tuple[Any, list[Any]]]

#: Elements of a probing call: a vector for every kernel.
ELEMENTS = 64

#: Elements of a probing call of a function that must be called once for each.
FEW = 8

#: Ordinary inputs times this are beyond every usual clamp, and within float16.
FAR = 40.0

#: Seconds after which a call, or the whole audit, is called slow.
SLOW_CALL, SLOW_AUDIT = 0.1, 60.0


def ordinary(inputs: tuple[str, ...], fmt: Format, n: int = ELEMENTS) -> tuple[FloatArray, ...]:
    """Return columns of ordinary values: log-ratios of both signs in 0.05 .. 2, log-probabilities < 0."""
    d = np.linspace(0.05, 2.0, n) * np.where(np.arange(n) % 2, 1.0, -1.0)
    policy = np.linspace(-5.0, -2.1, n)
    values = {"d": d, "policy": policy, "reference": policy + d, "old": policy + 0.0625,
              "mask": np.ones(n)}  # fmt: skip
    return tuple(fmt.cast(values.get(name, np.abs(d))) for name in inputs)


@dataclass
class _Trial:
    """A function, a back end and columns: what is needed to call it again and again."""

    loaded: Loaded
    binding: Binding
    backend: Any
    make: Make
    columns: tuple[FloatArray, ...]
    output: str | None
    device: str
    plan: ShapePlan = ShapePlan()  # noqa: RUF009 - frozen
    heard: list[Heard] = field(default_factory=list)
    mutated: bool = False

    def accept(self) -> Taken:
        """Find the shape that gives n values, else the first that gives one; sets ``plan``."""
        masked = bool(self.binding.masks) or "mask" in self.binding.inputs
        kinds: tuple[Mask, ...] = ("bool", "float") if masked else ("bool",)
        reduced: tuple[ShapePlan, Taken] | None = None
        failures: list[tuple[ShapePlan, CandidateError]] = []
        for kind, shape in itertools.product(kinds, SHAPES):
            self.plan = ShapePlan(shape, kind)
            try:
                taken = self._offer()
            except CandidateError as error:
                if error.__cause__ is None and not isinstance(error, WrongSizeError):
                    raise  # what it returns is no result in any shape
                failures.append((self.plan, error))
                continue
            if not taken.is_scalar:
                return taken
            reduced = reduced or (self.plan, taken)
        if reduced is None:
            raise _explained(failures)
        self.plan = replace(reduced[0], pointwise=True)
        self.columns = tuple(c[:FEW] for c in self.columns)
        return reduced[1]

    def _offer(self) -> Taken:
        """Call once in the shape of the plan; notes whether the inputs were changed."""
        xp, returned = self._watched(self.columns)
        return resolve(xp, returned, self.output, len(self.columns[0]))

    def _watched(self, columns: tuple[FloatArray, ...]) -> tuple[Any, Any]:
        xp, arrays = self.make(self.backend, columns)
        before = [bits(xp, x) for x in arrays]
        with self.listening():
            returned = invoke(self.loaded, self.binding, self.plan, xp, tuple(arrays))
        if before != [bits(xp, x) for x in arrays]:
            self.mutated = True
        return xp, returned

    def far(self) -> None:
        """Call with inputs beyond the usual clamps, which some apply in place."""
        with contextlib.suppress(CandidateError):
            self._watched(tuple((c * c.dtype.type(FAR)).astype(c.dtype) for c in self.columns))

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Open a quiet block whose output is kept."""
        with quiet() as heard:
            self.heard.append(heard)
            yield

    def run(self, columns: tuple[FloatArray, ...] | None = None) -> tuple[FloatArray, float]:
        """Call the candidate; return its values and the seconds taken."""
        xp, arrays = self.make(self.backend, columns or self.columns)
        fn = candidate(self.loaded, self.binding, self.output, self.plan)
        with self.listening():
            start = time.perf_counter()
            values = numbers(xp, fn(xp, *arrays))
            return values, time.perf_counter() - start


def probe(
    loaded: Loaded, binding: Binding, backend: Backend, make: Make | None = None, output: str | None = None,
    fmt: Format = FP32, columns: tuple[FloatArray, ...] | None = None, points: int = 0, length: int = 1 << 16,
    device: str = "cpu",
) -> Probe:  # fmt: skip
    """Call a function on the arrays of a back end in various ways; return what was found.

    ``columns`` (default: ordinary values of ``fmt``) are arrays of one length, one for each input.
    ``make`` is what makes arrays, ``Backend.arrays`` on the device by default.
    ``points`` is how many the audit is going to need, in arrays of ``length``.  Raises CandidateError,
    with the reason, if it does not accept the arrays or returns no result; UsageError for ``output``; and
    what ``make`` raises (Unavailable).
    """
    columns = columns or ordinary(binding.inputs, fmt)
    make = make or (lambda b, arrays: b.arrays(arrays, device))
    trial = _Trial(loaded, binding, backend, make, columns, output, device)
    taken = trial.accept()
    trial.far()
    trial.output = taken.key
    trial.plan = replace(trial.plan, copies=trial.mutated)
    facts = [
        Fact("accepts", f"accepts {backend.name} arrays"),
        Fact("shape", f"called on arrays of shape {trial.plan}"),
        Fact("format", f"returns {taken.result_format} for {fmt.name}"),
    ]
    if taken.is_scalar:
        facts.append(Fact("scalar", "returns one number: called for one element at a time"))
    if trial.mutated:
        facts.append(Fact("mutates", "changes its inputs: it is given copies"))
    values, seconds = _repeat(trial, taken, facts)
    if not np.isfinite(values).all():
        bad = int(np.argmin(np.isfinite(values)))
        inputs = ", ".join(
            f"{r}={float(c[bad]):g}" for r, c in zip(binding.inputs, trial.columns, strict=True)
        )
        facts.append(Fact("nonfinite", f"returns {float(values[bad])} at {inputs}"))
    _mixing(trial, values, facts)
    _gradient(trial, fmt, taken, facts)
    _speed(trial, seconds, points, length, facts)
    _noise(trial.heard, facts)
    return Probe(backend.name, trial.plan, trial.output, taken.result_format, taken.is_scalar,
                 len(trial.columns[0]), seconds, tuple(facts))  # fmt: skip


def _repeat(trial: _Trial, first: Taken, facts: list[Fact]) -> tuple[FloatArray, float]:
    """Call three times on the same input; of a reduction the first call is not comparable."""
    runs = [trial.run() for _ in range(3)]
    history = [values.tobytes() for values, _ in runs]
    if not first.is_scalar:
        xp, _ = trial.make(trial.backend, trial.columns)
        history.insert(0, bits(xp, first.array))
    if history[-1] != history[-2]:
        text = "two calls on the same input differ (random numbers, or a counter)"
        facts.append(Fact("random", text, blocks=True))
    elif len(set(history)) > 1:
        facts.append(Fact("state", "the first call differs from later ones (it keeps state)"))
    return runs[-1][0], min(seconds for _, seconds in runs)


def _mixing(trial: _Trial, values: FloatArray, facts: list[Fact]) -> None:
    """Change the second half of the input: the first half of the result must keep its bits."""
    if trial.plan.pointwise or any(f.flag == "random" for f in facts):
        return
    half = len(trial.columns[0]) // 2
    # Halved and turned round: another mean, another order, and still log-probabilities.
    changed = tuple(
        np.concatenate([c[:half], (c[half:][::-1] * c.dtype.type(0.5)).astype(c.dtype)])
        for c in trial.columns
    )
    if trial.run(changed)[0][:half].tobytes() != values[:half].tobytes():
        text = "the result of an element depends on the others (a mean or a scan within)"
        facts.append(Fact("mixes", text, blocks=True))


def _gradient(trial: _Trial, fmt: Format, taken: Taken, facts: list[Fact]) -> None:
    """Differentiate, where the back end can: a gradient that is 0 everywhere was detached."""
    if not trial.backend.differentiates:
        return
    fn = candidate(trial.loaded, trial.binding, trial.output, trial.plan)
    result = find_format(taken.result_format)
    try:
        with trial.listening():
            evaluate = trial.backend.evaluator(
                fn, trial.backend.modes[0].name, trial.device, fmt, "gradient", result=result
            )
            slope = evaluate(*trial.columns)
    except Unavailable:
        return
    except CandidateError as error:
        facts.append(_not_differentiable(trial.backend.name, error))
        return
    if not np.any(slope.astype(np.float64)):
        text = f"the gradient with respect to {trial.binding.inputs[0]} is 0 everywhere (detached)"
        facts.append(Fact("detached", text))


def _not_differentiable(backend: str, error: CandidateError) -> Fact:
    """Tell a function that turns arrays into NumPy's: tracked and traced ones refuse, and name NumPy."""
    if "numpy" in str(error.__cause__).lower():
        text = f"turns {backend} arrays into NumPy's: NumPy would be measured, not {backend}"
        return Fact("converts", text, blocks=True)
    return Fact("detached", f"cannot be differentiated: {error}")


def _speed(trial: _Trial, seconds: float, points: int, length: int, facts: list[Fact]) -> None:
    n, pointwise = len(trial.columns[0]), trial.plan.pointwise
    whole = projected(seconds, n, pointwise, points, length)
    per_call = seconds / n if pointwise else seconds
    if per_call > SLOW_CALL or whole > SLOW_AUDIT:
        text = f"takes {per_call:.2g} s a call" + (f", {whole:.2g} s for {points} points" if points else "")
        facts.append(Fact("slow", text))


def _noise(heard: list[Heard], facts: list[Fact]) -> None:
    printed = next((h.printed for h in heard if h.printed), None)
    if printed:
        facts.append(Fact("prints", f"prints: {printed}"))
    warned = next((w for h in heard for w in h.warnings), None)
    if warned:
        facts.append(Fact("warns", f"warns: {warned}"))


def _explained(failures: list[tuple[ShapePlan, CandidateError]]) -> CandidateError:
    """Return one error for all shapes: a result of the wrong size, or the first two exceptions."""
    for _, error in failures:
        if isinstance(error, WrongSizeError):
            return error
    plan, first = failures[0]
    for other, error in failures[1:]:
        if str(error) != str(first):
            return CandidateError(f"{first} for arrays of shape {plan}; {error} for {other}")
    return CandidateError(str(first))


def numbers(xp: Any, x: Any) -> FloatArray:
    """Return the values of an array in NumPy, half formats widened to float32 (which is exact)."""
    if str(xp.format_of(x)) in ("float16", "bfloat16"):
        x = xp.cast(x, "float32")
    return np.array(x.detach().cpu().numpy() if hasattr(x, "detach") else x)


def bits(xp: Any, x: Any) -> bytes:
    """Return the values of an array as bytes, to compare them bit for bit."""
    return numbers(xp, x).tobytes()
