"""Shared by the tests: a listener that says nothing, and measured rows by name."""

from __future__ import annotations

import pytest
from gfloat.formats import (
    format_info_bfloat16,
    format_info_binary16,
    format_info_binary32,
    format_info_binary64,
)

from kl_audit.backends import BACKENDS
from kl_audit.checks import judge
from kl_audit.findings import Judgement
from kl_audit.formats import BF16, FP16, FP32, FP64, find_format
from kl_audit.formulations import find_formulations
from kl_audit.grids import parse_grid
from kl_audit.quantities import find_quantity
from kl_audit.sweep import Block, Row, Target, sweep

ALL = [FP64, FP32, FP16, BF16]
GFLOAT = {
    "fp64": format_info_binary64,
    "fp32": format_info_binary32,
    "fp16": format_info_binary16,
    "bf16": format_info_bfloat16,
}
each = pytest.mark.parametrize("fmt", ALL, ids=lambda f: f.short)


class Silent:
    """A listener that is told and says nothing."""

    def start(self, block, chunks):
        pass

    def advance(self, what):
        pass

    def finish(self, block):
        pass


def run(
    quantity="k3", names=("expm1",), dtype="fp32", where=("numpy/eager",), grid="decades",
    output="value", per_decade=200, top=5, max_ulp=None, backends=BACKENDS,
) -> dict[tuple[str, str], tuple[Row, Judgement]]:  # fmt: skip
    """Measure, and return (row, judgement) by (formulation, ``torch-eager``)."""
    q = find_quantity(quantity)
    targets = tuple(Target(backends[w.split("/")[0]], w.split("/")[1], "cpu") for w in where)
    fs = tuple(find_formulations(q, list(names)))
    block = Block(q, output, find_format(dtype), parse_grid(grid, per_decade), fs, targets)
    return {
        (row.formulation.name, str(row.target)): (row, judge(row, max_ulp))
        for row in sweep([block], 0, top, Silent())
    }


@pytest.fixture(scope="session")
def measure():
    """Give tests the ``run`` function above."""
    return run
