"""Audits run in this process, and the command in a process of its own."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import mpmath
from conftest import Silent

from kl_audit.audit.log_ratio import Audited
from kl_audit.audit.request import Request, prepare

WEIGHTED = "exp(sg(d) - d) * (exp(d) - d - 1)"
NAIVE = "exp(d) - d - 1"
EXPM1 = "expm1(d) - d"
HYBRID = "where(abs(d) < 1e-2, d*d*(1/2 + d*(1/6 + d/24)), expm1(d) - d)"
CLAMP_OUT = "clip(exp(d) - d - 1, -10, 10)"
CLAMP_IN_OUT = "c = clip(d, -20, 20); clip(exp(c) - c - 1, -10, 10)"


@functools.cache
def audit(target=None, **request):
    """Return the rows of an audit; an option of several values may be a text with blanks, or a tuple."""
    for name in ("at", "dtypes", "backends", "modes", "with_", "against"):
        if isinstance(request.get(name), str):
            request[name] = tuple(request[name].split())
    return tuple(prepare(Request(target, **request)).run(Silent()))


def eager(target=None, backends="torch", **request):
    """Audit in the eager mode of torch."""
    return audit(target, backends=backends, modes="eager", **request)


def figures(row):
    """Return the judged part of a row, whichever kind it is."""
    return row.judgement if isinstance(row, Audited) else row.tried


def one(rows, output="value", wrt=0, mine=True):
    """Return the single row of an output (of the gradient by input number ``wrt``)."""
    found = [
        r
        for r in rows
        if r.mine is mine
        and (r.row.block.output if isinstance(r, Audited) else r.tried.output) == output
        and (output == "value" or not isinstance(r, Audited) or r.row.block.wrt == wrt)
    ]
    assert len(found) == 1, [figures(r) for r in found]
    return found[0]


def findings(row, level=None):
    """Return the findings of a row by code; of several with one code the first."""
    listed = figures(row).findings
    listed = list(listed.values()) if isinstance(listed, dict) else listed
    by_code = {}
    for f in listed:
        if level in (None, f.level):
            by_code.setdefault(f.code, f)
    return by_code


def threshold(row, name, sign=None):
    """Return the threshold called ``name`` (on one side of 0)."""
    found = [t for t in row.thresholds if t.name == name and (sign is None or (t.x > 0) == (sign > 0))]
    assert len(found) == 1, [(t.name, t.x) for t in row.thresholds]
    return found[0]


def k3(d):
    """Return k3 of a number to 60 digits."""
    with mpmath.workdps(400):
        d = mpmath.mpf(float(d))
        return mpmath.exp(d) - d - 1


def kl_audit(*args, env=None, cwd=None, code=None):
    """Run the command in a process of its own; stderr must never hold a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "kl_audit", *args],
        capture_output=True, text=True, check=False, cwd=cwd,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **(env or {})},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done
