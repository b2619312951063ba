"""Modes against each other: a finding of its own, counted element by element."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from audit.helpers import EXPM1, audit, findings, kl_audit, one

from kl_audit.formats import BF16


def by_mode(rows, output="value"):
    return {str(r.row.target): r for r in rows if r.row.block.output == output}


def every(dtype):
    """Every finite bfloat16, ascending and padded to a whole number of vectors."""
    values = BF16.finite_values()
    order = np.argsort(values.astype(np.float64), kind="stable")
    bits = torch.from_numpy(values[order].view(np.int16).copy())
    d = bits.view(dtype)
    return torch.cat([d, d.new_zeros(-len(d) % 4096)]), len(d)


def test_the_compiled_expm1_form_is_another_function():
    """Inductor emits exp(x) - 1 for expm1: KLA106 counts the inputs that differ, and negatives appear."""
    rows = by_mode(audit(expr=EXPM1, quantity="k3", backends="torch", dtypes="bf16", only="value",
                         explain=False))  # fmt: skip
    plain, compiled = rows["torch-eager"], rows["torch-compile"]
    assert "KLA106" not in findings(plain)
    finding = findings(compiled, "note")["KLA106"]
    d, n = every(torch.bfloat16)
    fn = lambda d: torch.expm1(d) - d  # noqa: E731
    torch.compiler.reset()
    with torch.no_grad():
        here, there = torch.compile(fn)(d)[:n], fn(d)[:n]
    differ = int(((here != there) & ~(here.isnan() & there.isnan())).sum())
    assert differ > 1000
    assert f"differs from torch-eager for {differ:,} of {n:,} inputs" in finding.message
    assert compiled.row.tally.negatives.n == int((here < 0).sum()) > 500
    assert plain.row.tally.negatives.n == int((there < 0).sum())
    assert "KLA101" in findings(compiled, "error")


def test_the_witness_of_a_difference_is_one():
    """The witness of KLA106 gives two results when it is called in the two modes."""
    rows = by_mode(audit(expr=EXPM1, quantity="k3", backends="torch", dtypes="bf16", only="value",
                         explain=False))  # fmt: skip
    finding = findings(rows["torch-compile"])["KLA106"]
    (x,) = finding.witness.inputs
    d = torch.full((4096,), x, dtype=torch.bfloat16)
    torch.compiler.reset()
    fn = lambda d: torch.expm1(d) - d  # noqa: E731
    assert torch.compile(fn)(d)[0].item() == finding.witness.got
    assert fn(d)[0].item() != finding.witness.got


@pytest.mark.parametrize(("expr", "backend"), [("d*d/2", "torch"), ("d*d/2", "jax"), ("expm1(d) - d", "jax")])
def test_equal_modes_are_no_finding(expr, backend):
    """Modes that agree on every bit have no KLA106."""
    quantity = "k2" if "/" in expr else "k3"
    rows = audit(expr=expr, quantity=quantity, backends=backend, only="value", per_decade=20, explain=False)
    assert len(rows) == 2
    assert all("KLA106" not in findings(r) for r in rows)


def test_modes_of_vectors_are_compared():
    """On cases the compiled mode is compared with eager, case by case."""
    expr = "sum(expm1(values) - values)"
    at = "values=" + ",".join(f"{x:g}" for x in np.geomspace(1e-5, 1e-3, 32))
    rows = audit(expr=expr, backends="torch", at=at, only="value", explain=False)
    plain, compiled = rows
    assert (str(plain.tried.target), str(compiled.tried.target)) == ("torch-eager", "torch-compile")
    assert "KLA106" not in findings(plain)
    message = findings(compiled, "note")["KLA106"].message
    assert "differs from torch-eager in 1 of 1 cases" in message


def test_modes_of_one_vector_function_that_agree():
    """A maximum has nothing to round: no difference between modes."""
    rows = audit(expr="max(values)", backends="torch jax", at="values=1,2,3", only="value", explain=False)
    assert len(rows) == 4
    assert all(findings(r) == {} for r in rows)


def test_a_mode_that_is_asked_for_alone_is_compared_with_nothing():
    """One mode alone has no other to differ from."""
    (row,) = audit(expr=EXPM1, quantity="k3", backends="torch", modes="compile", grid="1e-6:1e-3:64:log",
                   only="value", explain=False)  # fmt: skip
    assert "KLA106" not in findings(row)
    assert "KLA101" in findings(row, "error")


def test_a_switched_off_compiler_is_a_skipped_row():
    """A mode that cannot be had is a row with the reason; nothing measured is exit code 1."""
    done = kl_audit("audit", "--expr", EXPM1, "--quantity", "k3", "--backend", "torch", "--mode", "compile",
                    "--grid", "0.1", env={"TORCHDYNAMO_DISABLE": "1"}, code=1)  # fmt: skip
    assert "torch.compile is switched off" in done.stdout
    assert "nothing was measured: every row is skipped" in done.stderr


def test_gradients_of_modes_are_compared():
    """jax.jit simplifies the derivative of the expm1 form, (expm1(d) + 1) - 1: right; op by op, naive."""
    rows = by_mode(audit(expr=EXPM1, quantity="k3", backends="jax", only="gradient", per_decade=20,
                         explain=False), "gradient")  # fmt: skip
    plain, jit = one([rows["jax-eager"]], "gradient"), one([rows["jax-jit"]], "gradient")
    assert plain.judgement.core_rel > 0.01
    assert jit.judgement.core_rel < 1e-6
    finding = findings(jit, "note")["KLA106"]
    assert "k3 gradient expr float32 jax-jit: differs from jax-eager for " in finding.message
    (x,) = finding.witness.inputs
    assert finding.witness.got == pytest.approx(np.expm1(x), rel=1e-6)
