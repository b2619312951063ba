"""A room imports only the rooms above it, and frameworks are imported only by their back ends."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kl_audit

ROOT = Path(kl_audit.__file__).parent
ROOMS = [
    "errors", "discovery", "formats", "ulp", "oracle", "quantities", "formulations", "expression",
    "backends", "callee", "grids", "inputs", "measure", "ftz", "lengths", "sweep", "selection", "codes",
    "findings", "checks", "audit", "reported", "cases", "report", "cli",
]  # fmt: skip
FILES = sorted(ROOT.rglob("*.py"))


def imports(path: Path):
    """Yield (module, line) of every import in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((a.name, node.lineno) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.lineno


def room(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_rooms_import_upwards_only(path):
    """No module imports a room that comes after its own in the list."""
    if room(path) in ("__init__", "__main__"):
        return
    own = ROOMS.index(room(path))
    for module, line in imports(path):
        parts = module.split(".")
        if parts[0] == "kl_audit" and len(parts) > 1:
            assert ROOMS.index(parts[1]) <= own, f"{path.name}:{line} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_frameworks_stay_in_their_back_ends(path):
    """torch and jax are imported by their own back end, and by code of reports that a case names."""
    if room(path) == "reported":
        return
    for module, line in imports(path):
        framework = module.split(".")[0]
        if framework in ("torch", "jax", "jaxlib"):
            assert path.name == f"{framework.removesuffix('lib')}_backend.py", f"{path}:{line}"


def test_every_room_is_listed():
    """A new room has to take its place in the list."""
    found = {room(p) for p in FILES} - {"__init__", "__main__"}
    assert found <= set(ROOMS)


def test_help_imports_nothing_heavy():
    """``kl-audit --help`` imports no framework and no NumPy."""
    code = (
        "import sys; sys.argv = ['kl-audit', '--help']\n"
        "from kl_audit.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'jax', 'numpy', 'mpmath', 'flint'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
