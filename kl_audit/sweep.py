"""The engine: quantity x formulation x back end x mode x format on a grid, as a stream of rows.

Inputs and truths are computed once per chunk and shared by all rows; a row that fails is dropped
and the others go on.  ``sweep`` yields every row when its block is done, so that an interruption
keeps the blocks before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np

from kl_audit.backends import Backend, CandidateError, Evaluate, Unavailable
from kl_audit.errors import OracleError
from kl_audit.formats import FloatArray, Format, find_format, ordinal
from kl_audit.formulations import Formulation, formulations_of
from kl_audit.formulations.laws import Law
from kl_audit.ftz import Flushing, flushing
from kl_audit.grids import CHUNK, Grid, Points
from kl_audit.inputs import fits, from_log_ratios, from_rows, specials
from kl_audit.lengths import LENGTHS, LengthReport, exercise_lengths
from kl_audit.measure import Chunk, Tally, Witness
from kl_audit.oracle.truth import TruthArray
from kl_audit.quantities import QUANTITIES, Quantity, Side, objective
from kl_audit.quantities.base import Candidate

#: The shortest array that every kernel treats as a vector.
VECTOR = 64


@dataclass(frozen=True)
class Target:
    """One back end in one mode on one device."""

    backend: Backend
    mode: str
    device: str

    @property
    def compiles(self) -> bool:
        """Whether the mode compiles code for each shape."""
        return any(m.compiles for m in self.backend.modes if m.name == self.mode)

    def __str__(self) -> str:
        """Return ``torch-eager``, with the device where it is not the CPU."""
        name = f"{self.backend.name}-{self.mode}"
        return name if self.device == "cpu" else f"{name}-{self.device}"


@dataclass(frozen=True)
class Block:
    """The rows that share a grid and its truths."""

    quantity: Quantity
    output: str
    fmt: Format
    grid: Grid
    formulations: tuple[Formulation, ...]
    targets: tuple[Target, ...]
    wrt: int = 0  #: the input that a gradient is taken with respect to

    @property
    def what(self) -> str:
        """Name the quantity, and the gradient where it is one."""
        if self.output == "value":
            return self.quantity.name
        return f"{self.quantity.name} gradient" + (f" by {self.by}" if self.by else "")

    @property
    def by(self) -> str | None:
        """The input that a gradient is taken by, where there are several."""
        several = self.output == "gradient" and len(self.quantity.inputs) > 1
        return self.quantity.inputs[self.wrt] if several else None

    def __str__(self) -> str:
        """Name the block, for progress and for an interruption."""
        return f"{self.what} {self.fmt.short}"


@dataclass
class ModeDifference:
    """Where two modes of one back end disagree on the same inputs, bit for bit but for nan."""

    other: str  #: the mode that this row is compared with
    n: int
    at: Witness  #: where they are furthest apart, with this row's result
    there: float  #: the other mode's result
    steps: float = 0.0  #: how far apart, in values of the format; inf where one is nan


@dataclass
class Row:
    """One measured (or skipped, or failed) combination."""

    block: Block
    formulation: Formulation
    target: Target
    objective: Quantity
    law: Law | None
    tally: Tally
    skipped: str | None = None  #: why it was not measured
    failed: str | None = None  #: how the candidate or the oracle broke
    oracle_failed: bool = False
    library: Tally | None = None  #: the function that the law rests on, on the same target
    flushing: Flushing | None = None
    lengths: LengthReport | None = None
    modes: ModeDifference | None = None
    evaluate: Evaluate | None = field(default=None, repr=False)

    @property
    def side(self) -> Side:
        """The value or the gradient that the row is held against."""
        return self.objective.side(self.block.output, self.block.wrt)

    @property
    def result(self) -> Format:
        """The format of the results: that of the inputs, unless the candidate casts."""
        return self.tally.result

    def truth_at(self, inputs: tuple[float, ...], bits: int = 0) -> Fraction:
        """Return the certified truth of the row's objective at one point."""
        return self.side.exact(inputs, self.result, bits)


class Listener(Protocol):
    """What is told of progress."""

    def start(self, block: object, chunks: int) -> None:
        """Hear that a block begins (``str`` names it), with about so many steps."""

    def advance(self, what: str) -> None:
        """Hear that one step of it is done."""

    def finish(self, block: object) -> None:
        """Hear that a block is done."""


def sweep(
    blocks: list[Block], seed: int, top: int, listener: Listener, lengths: bool = True
) -> Iterator[Row]:
    """Measure the blocks, one after the other; yields each row once, complete.

    Without ``lengths`` short arrays and special values are left out: for a first look.
    """
    for block in blocks:
        rows = [_row(block, f, t, top) for f in block.formulations for t in block.targets]
        probes = _probes(block, rows, top)
        live = [r for r in (*rows, *probes.values()) if r.evaluate is not None]
        steps = max(1, -(-block.grid.count(block.fmt) // CHUNK)) * max(1, len(live)) + len(rows)
        listener.start(block, steps)
        _warm(block, live)
        _measure(block, live, seed, listener)
        for row in rows:
            key = _probe_key(row)
            probe = probes.get(key) if key else None
            if probe is not None and probe.failed is None and probe.tally.points:
                row.library = probe.tally
            if lengths and row.evaluate is not None and row.failed is None:
                _exercise(block, row)
            listener.advance(f"{row.formulation.name} {row.target}")
        listener.finish(block)
        yield from rows


def _row(block: Block, formulation: Formulation, target: Target, top: int) -> Row:
    """Set up a row: an evaluator, or the reason why there is none."""
    law = formulation.law if block.output == "value" else formulation.gradient_law
    quantity = objective(block.quantity, formulation.clamp)
    value = block.output == "value"
    result = (formulation.result if value else None) or block.fmt
    tally = Tally(quantity, block.fmt, block.output, law, top, result=result)
    row = Row(block, formulation, target, quantity, law, tally)
    row.skipped = formulation.reason_not_for(block.fmt) or fits(block.quantity, block.grid)
    if row.skipped:
        return row
    try:
        row.evaluate = target.backend.evaluator(
            lifted(block.quantity, formulation), target.mode, target.device, block.fmt, block.output,
            block.wrt, formulation.result,
        )  # fmt: skip
        row.flushing = flushing(target.backend, target.mode, target.device, result)
        tally.flushes = row.flushing.results
    except Unavailable as reason:
        row.skipped = str(reason)
        row.evaluate = None
    except CandidateError as error:
        row.failed = str(error)
    return row


def lifted(quantity: Quantity, formulation: Formulation) -> Candidate:
    """Return the candidate for a quantity: a formulation of its base is lifted, its own is not."""
    own = formulation.quantity == quantity.name
    return formulation.fn if own else quantity.lift(formulation.fn)


ProbeKey = tuple[str, Format, Target]


def _probe_key(row: Row) -> ProbeKey | None:
    """Name the library function that a row's law rests on, its format and its target."""
    if row.law is None or row.law.rests_on is None:
        return None
    fmt = find_format(row.law.inside) if row.law.inside else row.block.fmt
    return row.law.rests_on, fmt, row.target


def _probes(block: Block, rows: list[Row], top: int) -> dict[ProbeKey, Row]:
    """Return hidden rows that measure the library functions which the laws rest on."""
    probes: dict[ProbeKey, Row] = {}
    for row in rows:
        key = _probe_key(row)
        if key is None or key in probes or row.evaluate is None:
            continue
        function, fmt, target = key
        (library,) = formulations_of(function)
        inner = Block(QUANTITIES[function], "value", fmt, block.grid, (library,), (target,))
        probes[key] = _row(inner, library, target, top)
    return probes


def _warm(block: Block, live: list[Row]) -> None:
    """Compile ahead, one thread a back end: compilers wait for other programs most of the time.

    What fails here fails again, and is told, when it is measured.
    """
    by_backend: dict[str, list[Row]] = {}
    for row in live:
        if row.target.compiles:
            by_backend.setdefault(row.target.backend.name, []).append(row)
    if len(by_backend) < 2:
        return

    def warm(rows: list[Row]) -> None:
        for row in rows:
            assert row.evaluate is not None
            columns = specials(row.block.quantity, row.block.fmt)
            with contextlib.suppress(CandidateError, Unavailable):
                padded(row.evaluate, columns, _vector_length(block))
                if row.block is block:
                    for length in LENGTHS:
                        row.evaluate(*(c[:length] for c in columns))

    with ThreadPoolExecutor(len(by_backend)) as pool:
        list(pool.map(warm, by_backend.values()))


def _chunks(block: Block, seed: int) -> Iterator[tuple[FloatArray, ...]]:
    if isinstance(block.grid, Points) and len(block.grid.values[0]) > 1:
        yield from_rows(block.quantity, block.fmt, block.grid)
        return
    for i, d in enumerate(block.grid.chunks(block.fmt, seed)):
        yield from_log_ratios(block.quantity, block.fmt, d, (seed, 2, i))


def padded(evaluate: Evaluate, inputs: tuple[FloatArray, ...], length: int) -> FloatArray:
    """Evaluate at a fixed vector length, so that compilers see one shape and no kernel a short one."""
    n = len(inputs[0])
    missing = max(0, length - n)
    full = [np.concatenate([c, np.repeat(c[-1:], missing)]) if missing else c for c in inputs]
    out: FloatArray = evaluate(*full)[:n]
    return out


def _vector_length(block: Block) -> int:
    n = min(CHUNK, block.grid.count(block.fmt))
    return -(-max(n, 1) // VECTOR) * VECTOR


def _measure(block: Block, live: list[Row], seed: int, listener: Listener) -> None:
    """Run every live row over the grid."""
    length = _vector_length(block)
    formats = {r.block.fmt for r in live if r.block is not block}
    for inputs in _chunks(block, seed):
        shared = Chunk(block.quantity, block.fmt, inputs)
        of_d = {fmt: _log_ratio_chunk(shared, fmt) for fmt in formats}
        truths: dict[object, TruthArray | OracleError] = {}
        results: dict[object, tuple[str, FloatArray]] = {}
        for row in live:
            if row.failed is not None:
                continue
            probe = row.block is not block
            chunk = of_d[row.block.fmt] if probe else shared
            key = (row.objective.name, row.formulation.clamp, row.block.fmt, row.result, probe)
            if key not in truths:
                truths[key] = _truth(row, chunk)
            truth = truths[key]
            if isinstance(truth, OracleError):
                row.failed, row.oracle_failed = str(truth), True
                continue
            assert row.evaluate is not None
            try:
                result = padded(row.evaluate, chunk.inputs, length)
            except Unavailable as reason:
                row.skipped, row.evaluate, row.failed = str(reason), None, str(reason)
            except CandidateError as error:
                row.failed = str(error)
            else:
                row.tally.update(chunk, truth, result)
                if not probe:
                    _compare_modes(row, chunk, result, results)
            listener.advance(f"{row.formulation.name} {row.target}")
    for row in live:
        if row.evaluate is None:
            row.failed = None  # skipped, not failed


def _compare_modes(
    row: Row, chunk: Chunk, result: FloatArray, results: dict[object, tuple[str, FloatArray]]
) -> None:
    """Compare with the back end's first mode on the same inputs, in integer steps."""
    key = (row.formulation.name, row.target.backend.name, row.target.device)
    first, base = results.setdefault(key, (row.target.mode, result))
    if base is result or base.dtype != result.dtype:
        return
    nan = np.isnan(result.astype(np.float64)), np.isnan(base.astype(np.float64))
    steps = np.abs(ordinal(result, row.result).astype(np.float64) - ordinal(base, row.result))
    steps = np.where(nan[0] | nan[1], np.where(nan[0] & nan[1], 0.0, np.inf), steps)
    n = int(np.count_nonzero(steps))
    if not n:
        return
    i = int(np.argmax(steps))
    at = chunk.witness(i, result.astype(np.float64))
    found = ModeDifference(first, n, at, float(base[i]))
    before = row.modes
    if before is not None:
        keep = before if before.steps >= steps[i] else found
        found = ModeDifference(first, n + before.n, keep.at, keep.there)
    found.steps = max(float(steps[i]), before.steps if before else 0.0)
    row.modes = found


def _log_ratio_chunk(chunk: Chunk, fmt: Format) -> Chunk:
    """Return the log-ratios of a chunk in a format: what a library function is called on."""
    if len(chunk.inputs) == 1 and fmt == chunk.fmt:
        return chunk
    d = fmt.cast(chunk.x)
    d = d[np.isfinite(d.astype(np.float64))]
    return Chunk(QUANTITIES["exp"], fmt, (d if len(d) else fmt.cast([1.0]),))


def _truth(row: Row, chunk: Chunk) -> TruthArray | OracleError:
    try:
        return row.side.truth(chunk.wide, row.result)
    except OracleError as error:
        return error


def _exercise(block: Block, row: Row) -> None:
    """Run the worst points and the special values at lengths 1..9, and at vector length."""
    assert row.evaluate is not None
    extra = specials(block.quantity, block.fmt)
    worst = [w.inputs for _, w in row.tally.worst[:3]]
    columns = tuple(
        np.concatenate([block.fmt.cast([w[i] for w in worst]), extra[i]]) for i in range(len(extra))
    )
    length = _vector_length(block) if row.target.compiles else VECTOR
    try:
        at_vector = padded(row.evaluate, columns, length)
        row.lengths = exercise_lengths(row.evaluate, columns, at_vector, len(worst))
    except (CandidateError, Unavailable) as error:
        row.failed = f"at a short length: {error}"
