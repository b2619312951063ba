"""From names on a command line to targets, formats and grids; shared by the commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kl_audit.backends import BACKENDS, find_backend
from kl_audit.errors import UsageError, unknown
from kl_audit.formats import FORMATS, Format, find_format
from kl_audit.grids import Grid, parse_grid
from kl_audit.sweep import Target

#: Values in each decade by default: 2e5 points of float32, and 1e5 of float64, whose truth is slow.
PER_DECADE = {"float64": 200}
PER_DECADE_DEFAULT = 2000

#: The names that a back end may give a device.
DEVICES = ("cpu", "cuda", "rocm", "tpu", "xpu", "mps")


def named(names: Iterable[str], known: list[str]) -> list[str]:
    """Return the names, once each, or every known one for ``all``."""
    asked = list(dict.fromkeys(names))
    return known if "all" in asked else asked


def choose_targets(backends: Sequence[str], modes: Sequence[str], device: str) -> tuple[Target, ...]:
    """Return back ends x modes; raises UsageError for an unknown name or an empty combination."""
    chosen = [find_backend(n) for n in named(backends or ["all"], list(BACKENDS))]
    modes = modes or ["all"]
    every_mode = list(dict.fromkeys(m.name for b in BACKENDS.values() for m in b.modes))
    for name in modes:
        if name not in (*every_mode, "all"):
            raise unknown("mode", name, every_mode)
    if device not in DEVICES:
        raise unknown("device", device, list(DEVICES))
    targets = tuple(
        Target(b, m.name, device) for b in chosen for m in b.modes if "all" in modes or m.name in modes
    )
    if not targets:
        have = "; ".join(f"{b.name}: {', '.join(m.name for m in b.modes)}" for b in chosen)
        raise UsageError(f"no such mode in these backends: {', '.join(modes)}. They have {have}.")
    return targets


def choose_formats(names: Sequence[str]) -> tuple[Format, ...]:
    """Return the formats, once each; raises UsageError."""
    return tuple(dict.fromkeys(find_format(n) for n in named(names or ["fp32"], list(FORMATS))))


def grid_for(text: str | None, per_decade: int | None, fmt: Format, inputs: int) -> Grid:
    """Return the grid asked for, or the default: exhaustive for one 16-bit input, else by decade."""
    default = "exhaustive" if fmt.bits == 16 and inputs == 1 else "decades"
    n = per_decade if per_decade is not None else PER_DECADE.get(fmt.name, PER_DECADE_DEFAULT)
    return parse_grid(default if text is None else text, n)
