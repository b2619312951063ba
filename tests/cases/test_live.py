"""A framework's own function, cut out of its file and called without importing its package."""

from __future__ import annotations

import sys

import pytest
from cases.helpers import HEAD, PART
from mpmath import mp, mpf

from kl_audit.cases.live import function_of, live_rows
from kl_audit.cases.load import read_case
from kl_audit.cases.run import Settings

SOURCE = '''
"""A module that cannot be imported here."""
from __future__ import annotations
import enum
import deepspeed_that_is_not_here
import torch
from flash_attn_that_is_not_here import kernel
from typing import Optional

LIMIT = 10.0
raise RuntimeError("the module was executed")

def _clamped(x):
    return torch.clamp(x, -LIMIT, LIMIT)

@kernel.jit
def penalty(logprob: torch.Missing, ref_logprob: "Also", kind: Optional[kernel] = "k3") -> kernel.Type:
    """Estimate."""
    d = ref_logprob - logprob
    if kind == "kernel":
        return kernel(d)
    if kind == "tuple":
        return d, {"k3": _clamped(torch.exp(d) - d - 1)}
    if kind == "number":
        return 1.0
    return _clamped(torch.exp(d) - d - 1)

class Estimator:
    @staticmethod
    def apply(logprob, ref_logprob):
        return penalty(logprob, ref_logprob)
'''
LIVE = """
[[live]]
part = "value"
package = "trainer-of-tests"
file = "trainer_of_tests/losses.py"
function = "penalty"
backend = "torch"
inputs = { policy = "-1e-6", reference = "0" }
args = { logprob = "policy", ref_logprob = "reference" }
shape = [1, -1]
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution as pip leaves it."""
    (tmp_path / "trainer_of_tests").mkdir()
    (tmp_path / "trainer_of_tests" / "losses.py").write_text(SOURCE, encoding="utf-8")
    meta = tmp_path / "trainer_of_tests-1.2.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: trainer-of-tests\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def rows_of(live=LIVE, part=PART):
    return list(live_rows(read_case(HEAD + part + live, "case.toml"), Settings()))


@pytest.mark.usefixtures("installed")
def test_the_function_itself_is_called():
    """Its result, the truth of the pair, and the version; its module is not executed."""
    (row,) = rows_of()
    assert (row.outcome, row.seen) == ("reproduced", -(2.0**-24)), row.reason
    assert row.live == "trainer-of-tests 1.2 penalty"
    assert row.expected is None
    with mp.workdps(60):
        d = -mpf(float(__import__("numpy").float32(-1e-6)))
        assert float(row.truth) == pytest.approx(float(mp.exp(d) - d - 1), rel=1e-15)
        assert float(row.gradient_truth) == pytest.approx(float(-mp.expm1(d)), rel=1e-15)
    assert "trainer_of_tests" not in sys.modules


@pytest.mark.usefixtures("installed")
def test_a_static_method_is_found_in_its_class():
    """Class.method."""
    (row,) = rows_of(LIVE.replace('"penalty"', '"Estimator.apply"'))
    assert row.seen == -(2.0**-24)


@pytest.mark.usefixtures("installed")
def test_constants_and_a_part_of_the_result():
    """``with`` gives arguments, ``take`` the part of a tuple or dict."""
    (row,) = rows_of(LIVE + 'with = { kind = "tuple" }\ntake = 0\n')
    assert row.seen == pytest.approx(1e-6)
    (row,) = rows_of(LIVE + 'with = { kind = "number" }\n')
    assert row.reason == "returned float, expected an array"


@pytest.mark.usefixtures("installed")
def test_what_the_function_needs_and_has_not_is_told():
    """A name of a package that is not here, when it is used."""
    (row,) = rows_of(LIVE + 'with = { kind = "kernel" }\n')
    assert "kernel" in row.reason
    assert row.outcome == "changed"


def test_a_package_that_is_not_here_is_skipped_with_what_would_bring_it():
    """The pip line."""
    (row,) = rows_of()
    assert row.outcome == "skipped"
    assert row.reason == "trainer-of-tests is not installed (pip install --no-deps trainer-of-tests)"


@pytest.mark.usefixtures("installed")
def test_a_function_or_file_that_is_gone_is_told():
    """With the version in which it is not."""
    (row,) = rows_of(LIVE.replace('"penalty"', '"kl_penalty"'))
    assert row.reason == "trainer-of-tests 1.2 has no kl_penalty in trainer_of_tests/losses.py"
    (row,) = rows_of(LIVE.replace("losses.py", "kl.py"))
    assert row.reason == "trainer-of-tests 1.2 has no file trainer_of_tests/kl.py"


@pytest.mark.usefixtures("installed")
def test_only_what_it_uses_is_executed():
    """The definition, its helper and its constant."""
    case = read_case(HEAD + PART + LIVE, "case.toml")
    version, fn = function_of(case.live[0])
    assert version == "1.2"
    assert {"LIMIT", "_clamped", "torch"} <= set(fn.__globals__)
    assert "enum" not in fn.__globals__
