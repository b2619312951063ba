"""A new case from a formula and inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from kl_audit.cases.load import read_case
from kl_audit.cases.run import Settings, run_case
from kl_audit.cases.write import Draft, new_case
from kl_audit.errors import UsageError

NAIVE = Draft("mine-1", "exp(d) - d - 1", ("d=1e-6",), quantity="k3", backends=("torch",), modes=("eager",))


def written(draft):
    text, lines = new_case(draft)
    return read_case(text, "new.toml"), lines


def test_a_new_case_is_reproduced_where_it_was_written():
    """The truth filled in, the wrong result as seen, the versions, and it runs as expected."""
    case, lines = written(NAIVE)
    part = case.part[0]
    with mp.workdps(60):
        d = mpf(float(np.float32(1e-6)))
        assert float(part.right) == pytest.approx(float(mp.exp(d) - d - 1), rel=1e-15)
    assert float(part.reported) == pytest.approx(-(2.0**-24), rel=1e-8)
    assert part.reported_with["torch"].startswith("2.13")
    assert part.reproduced_when == "negative"
    assert case.last_seen["torch"].startswith("2.13")
    assert all(r.outcome == "reproduced" and r.as_expected for r in run_case(case, Settings()))
    assert lines == ["torch-eager: -5.96046448e-08, right 5.0000016414194978e-13"]


def test_back_ends_that_differ_are_told_apart():
    """NumPy is wrong too, and in another way; jax runs in both modes."""
    case, _ = written(Draft("mine-1", "expm1(d) - d", ("d=1e-6",), quantity="k3", modes=("eager", "jit")))
    rows = list(run_case(case, Settings()))
    assert len(rows) == 4
    assert all(r.as_expected for r in rows)


@pytest.mark.parametrize(
    ("expr", "at", "criterion"),
    [("exp(x)", "x=1000", None), ("exp(x) - exp(x)", "x=1000", "nan"), ("exp(x)/exp(x)*x", "x=89", "nan"),
     ("exp(x)*exp(-x) + 0*x", "x=-100", "infinite"), ("(1 + x) - 1", "x=1e-9", "zero"),
     ("exp(x)*1e-30", "x=100", "infinite"), ("(1e4 + x) - 1e4", "x=1e-3", "off by 0.01")],
)  # fmt: skip
def test_the_plainest_condition_is_chosen(expr, at, criterion):
    """NaN, infinite, zero, or off by 1 %; nothing where nothing is wrong."""
    draft = Draft("mine-1", expr, (at,), backends=("torch",), modes=("eager",))
    if criterion is None:
        with pytest.raises(UsageError, match="nothing is wrong here"):
            new_case(draft)
        return
    assert written(draft)[0].part[0].reproduced_when == criterion


def test_a_gradient_with_masks_constants_and_types():
    """Everything that a part may need gets into the file."""
    draft = Draft(
        "mine-2", "sum(where(m, clip(exp(d) - d - 1, -c, c), 0))", ("d=100,0", "m:bool=1,0"),
        constants=("c=10",),
        output="gradient", wrt="d", element=0, backends=("torch", "jax"), modes=("eager",), kind="overflow",
        title="NaN", source="https://github.com/owner/mine/issues/2",
    )  # fmt: skip
    case, _ = written(draft)
    assert (case.kind, case.title) == ("overflow, inf and NaN", "NaN")
    part = case.part[0]
    assert part.reproduced_when == "nan"
    assert math.isnan(float(part.reported))
    assert float(part.right) == 0
    assert [r.outcome for r in run_case(case, Settings())] == ["reproduced", "reproduced"]


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        (Draft("mine-1", "exp(", ("d=1",)), "expression: "),
        (Draft("mine-1", "exp(d)", ("d=x",)), "'x' is not a number"),
        (Draft("Mine 1", "exp(d)", ("d=1",)), "'id' is 'Mine 1'"),
        (Draft("mine-1", "exp(d)", ("d=1",), output="both"), "unknown output 'both'"),
        (Draft("mine-1", "exp(d)", ("d=1",), kind="none"), "unknown kind 'none'"),
        (Draft("mine-1", "exp(d)", ("d=1",), quantity="k3"), None),
        (Draft("mine-1", "exp(d) - d - 1", ("d=1",), quantity="k3"), "nothing is wrong here: the greatest"),
        (Draft("mine-1", "exp(d)", ("d=1,2",)), "say which"),
        (Draft("mine-1", "exp(d)", ("d=1",), backends=("tf",)), "unknown backend 'tf'"),
        (Draft("mine-1", "exp(d)", ("d=1",), dtype="fp8"), "unknown dtype 'fp8'"),
    ],
)
def test_what_cannot_be_written_is_refused(draft, message):
    """One line that says why."""
    if message is None:
        assert written(draft)[0].part[0].reproduced_when == "off by 0.01"
        return
    with pytest.raises(UsageError, match=message):
        new_case(draft)
