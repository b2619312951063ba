"""Small case files for the tests."""

from __future__ import annotations

from kl_audit.cases.load import read_case
from kl_audit.cases.run import Settings, run_case

HEAD = """
id = "repo-1"
title = "a title"
source = "https://github.com/owner/repo/issues/1"
kind = "cancellation near zero"
about = "why"
"""
PART = """
[[part]]
name = "value"
quantity = "k3"
expr = "exp(d) - d - 1"
inputs = { d = "1e-6" }
backends = ["torch"]
modes = ["eager"]
reproduced_when = "negative"
"""


def case_of(part=PART, head=HEAD, **changes):
    """Return a case; ``changes`` replace lines of the part by key, None removes one."""
    lines = part.splitlines()
    for key, value in changes.items():
        name = key.rstrip("_")
        lines = [line for line in lines if not line.startswith(f"{name} = ")]
        if value is not None:
            lines.append(f"{name} = {value}")
    return read_case(head + "\n".join(lines), "case.toml")


def rows_of(case, **settings):
    """Run a case."""
    return list(run_case(case, Settings(**settings)))


def row_of(**changes):
    """Run a case of one part in one place."""
    (row,) = rows_of(case_of(**changes))
    return row
