"""Shared by the tests of this room: the users' functions, loaded, and what makes arrays."""

from __future__ import annotations

from pathlib import Path

from kl_audit.backends import BACKENDS
from kl_audit.callee import bind, load, probe, wants

THEIRS = Path(__file__).parent / "theirs"


def their(kind: str, name: str):
    """Load a function of ``theirs/KIND_losses.py``."""
    return load(f"{THEIRS / f'{kind}_losses.py'}:{name}")


def make(backend, columns):
    return backend.arrays(columns)


def inputs_of(loaded):
    return ("policy", "reference") if wants(loaded) == "pair" else ("d",)


def bound(kind: str, name: str, inputs=None, args=None, constants=()):
    """Load and bind; d or the pair, as the function wants."""
    loaded = their(kind, name)
    return loaded, bind(loaded, inputs or inputs_of(loaded), args, list(constants))


def probed(kind: str, name: str, output=None, constants=(), backend=None, **options):
    """Load, bind and probe on the function's own framework, or another."""
    loaded, binding = bound(kind, name, constants=constants)
    found = probe(loaded, binding, BACKENDS[backend or kind], make, output, **options)
    return loaded, binding, found
