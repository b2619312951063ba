"""From what the reader asks for to a job: every name resolved, and whatever does not fit refused."""

from __future__ import annotations

from kl_audit.audit.at import parse_at
from kl_audit.audit.home import homes
from kl_audit.audit.job import Asked, Job, Request
from kl_audit.audit.routes import of_scalar, of_truth, of_vector
from kl_audit.audit.subject import match_names
from kl_audit.callee import Loaded, load, wants_pair
from kl_audit.callee.literals import parse_constants
from kl_audit.errors import UsageError, unknown
from kl_audit.expression import Expression, parse
from kl_audit.quantities import QUANTITIES, Quantity
from kl_audit.quantities.vectors import VECTORS
from kl_audit.selection import choose_formats, choose_targets
from kl_audit.sweep import Target


def prepare(r: Request) -> Job:
    """Resolve every name; raises UsageError with one line for whatever does not fit."""
    _check(r)
    loaded = load(r.target) if r.target is not None else None
    expression = parse(r.expr) if r.expr is not None else None
    asked = Asked(
        r, expression, loaded, parse_at(r.at) if r.at else None, parse_constants(list(r.with_)),
        _targets(r, loaded), choose_formats(r.dtypes),
    )  # fmt: skip
    if r.quantity is None:
        truth = parse(r.truth) if r.truth is not None else expression
        if truth is None:
            raise UsageError(
                f"what ought {r.target} to compute? Give --quantity ({', '.join(QUANTITIES)}, "
                f"{', '.join(VECTORS)}) or --truth FORMULA."
            )
        return of_truth(asked, truth)
    name = r.quantity.lower()
    if name in VECTORS:
        return of_vector(asked, VECTORS[name])
    return of_scalar(asked, _scalar(name, expression, loaded, r.args))


def _check(r: Request) -> None:
    """Refuse what contradicts itself before anything is loaded."""
    if (r.target is None) == (r.expr is None):
        raise UsageError(
            "give one thing to audit: package.module:function, or a formula with --expr 'exp(d) - d - 1'."
        )
    if r.quantity is not None and r.truth is not None:
        raise UsageError("--quantity and --truth both say what is right; give one of them.")
    if r.only not in (None, "value", "gradient", "all"):
        raise unknown("--only", r.only, ["value", "gradient"])
    for option, limit in (("--max-rel", r.max_rel), ("--max-ulp", r.max_ulp)):
        if limit is not None and not limit >= 0:
            raise UsageError(f"{option} {limit:g}: expected a number, 0 or more.")
    for n in r.sizes:
        if not 1 <= n <= 1_000_000:
            raise UsageError(f"--size {n}: expected 1 to 1000000 entries.")
    if r.at and (r.grid is not None or r.per_decade is not None):
        raise UsageError("--at gives the inputs, and --grid would too; give one of them.")


def _targets(r: Request, loaded: Loaded | None) -> tuple[Target, ...]:
    """Return where to run: as told, or for a function the framework that it uses."""
    backends = list(r.backends)
    if not backends and loaded is not None:
        backends = homes(loaded)
    return choose_targets(backends, list(r.modes), r.device)


def _scalar(name: str, expression: Expression | None, loaded: Loaded | None, args: str | None) -> Quantity:
    """Find a quantity of the log-ratio; k3 of a function of two log-probabilities is k3-pair."""
    if name not in QUANTITIES:
        raise unknown("quantity", name, [*QUANTITIES, *VECTORS])
    pair = f"{name}-pair"
    if pair in QUANTITIES and _of_pair(expression, loaded, args, QUANTITIES[pair].inputs):
        name = pair
    return QUANTITIES[name]


def _of_pair(
    expression: Expression | None, loaded: Loaded | None, args: str | None, inputs: tuple[str, ...]
) -> bool:
    if loaded is not None:
        return wants_pair(loaded, args)
    if expression is None or len(expression.names) < 2:
        return False
    try:
        match_names(expression, inputs, args, {})
    except UsageError:
        return False
    return True


__all__ = ["Job", "Request", "prepare"]
