"""Break the harness on purpose, and demand the right verdict."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from kl_audit.backends import BACKENDS
from kl_audit.checks import judge
from kl_audit.formats import BF16, FP16, FP32
from kl_audit.formulations import find_formulations
from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import EXPM1_LAW, UlpLaw
from kl_audit.grids import Exhaustive, parse_grid
from kl_audit.quantities import K1, K3, find_quantity
from kl_audit.quantities.base import Side
from kl_audit.sweep import Block, Target, sweep
from kl_audit.ulp import round_to_format

NUMPY = Target(BACKENDS["numpy"], "eager", "cpu")


def audit(fn, fmt=FP32, grid="1e-6:1:500:log", law=None, quantity=K3, max_ulp=None, listener=None):
    """Judge one candidate in NumPy."""
    from conftest import Silent

    formulation = Formulation("candidate", quantity.base_name, fn, "", "", law)
    parsed = grid if not isinstance(grid, str) else parse_grid(grid, 100)
    block = Block(quantity, "value", fmt, parsed, (formulation,), (NUMPY,))
    (row,) = sweep([block], 0, 5, Silent())
    return row, judge(row, max_ulp)


def perfect(fmt, reference=K3.value.reference):
    """Return a candidate that is correctly rounded, by the exact oracle's rational arithmetic."""
    from kl_audit.oracle.exact import certify

    def fn(xp, d):
        wide = d.astype(np.float64)
        out = [
            round_to_format(certify(reference, (float(x),), fmt), fmt) if np.isfinite(x) else x for x in wide
        ]
        return fmt.cast(out)

    return fn


def one_ulp_up(fmt):
    """Return the correctly rounded candidate, every finite result one step too high."""
    right = perfect(fmt)

    def fn(xp, d):
        y = right(xp, d)
        return np.nextafter(y, y.dtype.type(np.inf)) if fmt is FP32 else y

    return fn


def codes(judgement, level="error"):
    return {f.code for f in judgement.findings if f.level == level}


def test_a_correctly_rounded_candidate_passes_at_half_an_ulp():
    """The limit of 0.5 ulp is met by rounding the truth, and by a margin of nothing."""
    _, judgement = audit(perfect(FP32), max_ulp=0.5, grid="1e-6:1:60:log")
    assert judgement.verdict == "pass"
    assert 0.4 < judgement.max_ulp <= 0.5


def test_an_off_by_one_ulp_candidate_fails():
    """One step too high is caught by a bound of one half, and is between 0.5 and 1.5 ulp."""
    _, judgement = audit(one_ulp_up(FP32), max_ulp=0.5, grid="1e-6:1:60:log")
    assert "KLA001" in codes(judgement)
    assert 1.0 < judgement.max_ulp <= 1.5


def test_a_single_off_by_one_among_thousands_is_found():
    """k1 is exact; one wrong bit at one input of 63,488 fails the law of 0 ulp and is named."""

    def fn(xp, d):
        y = -d
        hit = d == np.float16(1.5)
        return np.where(hit, np.nextafter(y, np.float16(0)), y)

    row, judgement = audit(fn, FP16, Exhaustive(), UlpLaw(0), K1)
    assert judgement.verdict == "fail"
    assert codes(judgement) == {"KLA301"}
    assert row.tally.worst[0][1].inputs == (1.5,)
    assert judgement.max_ulp == 1.0


def test_a_wrong_oracle_is_a_finding(monkeypatch):
    """A bulk truth that is off by one ulp of float32 disagrees with the exact oracle: KLA902."""
    right = K3.value.fast

    def wrong(d):
        total = right(d)
        return dataclasses.replace(total, hi=total.hi * (1 + 2.0**-23))

    lying = dataclasses.replace(K3, value=Side(K3.value.reference, wrong))
    _, judgement = audit(lambda xp, d: xp.expm1(d) - d, law=EXPM1_LAW, quantity=lying, grid="0.5,0.7")
    assert "KLA902" in codes(judgement)


def test_a_wrong_exact_reference_is_a_finding():
    """A reference that disagrees with the bulk truth (a swapped sign) is caught the same way."""
    lying = dataclasses.replace(K3, value=Side(lambda ops, d: ops.exp(-d) + d - 1, K3.value.fast))
    _, judgement = audit(lambda xp, d: xp.expm1(d) - d, law=EXPM1_LAW, quantity=lying)
    assert "KLA902" in codes(judgement)


def test_a_swapped_sign_fails():
    """d in place of -d: the candidate computes k3(-d)."""
    _, judgement = audit(lambda xp, d: xp.expm1(-d) + d, law=EXPM1_LAW)
    assert judgement.verdict == "fail"
    assert judgement.law.blame == "formulation"


def test_flush_to_zero_in_a_candidate_is_held_against_it():
    """NumPy keeps subnormals, so a candidate that flushes its own fails by false zeros."""

    def flushing(xp, d):
        y = (xp.constant(0.5, d) * d) * d
        return np.where(np.abs(y) < BF16.dtype.type(BF16.smallest_normal), y * 0, y)

    row, judgement = audit(flushing, BF16, Exhaustive(), UlpLaw(0.5), find_quantity("k2"))
    assert not row.flushing.results
    smallest, normal = Fraction(BF16.smallest), Fraction(BF16.smallest_normal)
    squares = [Fraction(float(x)) ** 2 / 2 for x in BF16.finite_values() if abs(float(x)) < 1]
    rounded = [t for t in squares if smallest / 2 < t < normal - smallest / 2]
    assert row.tally.false_zeros.n == len(rounded) > 1000
    assert {"KLA104", "KLA301"} <= codes(judgement)


def test_one_lost_negative_is_noticed():
    """The count of negatives is exact: a candidate with one fewer has one fewer."""

    def naive(xp, d):
        return xp.exp(d) - d - 1

    def repaired(xp, d):
        y = naive(xp, d)
        first = np.flatnonzero(y < 0)[:1]
        y[first] = 0
        return y

    counts = [audit(f, FP16, Exhaustive())[0].tally.negatives.n for f in (naive, repaired)]
    assert counts == [1967, 1966]


def test_a_nan_is_counted_apart():
    """NaN in one place fails the row and leaves the maximum alone."""

    def fn(xp, d):
        y = xp.expm1(d) - d
        return np.where(d == np.float16(0.25), np.float16(np.nan), y)

    clean, _ = audit(lambda xp, d: xp.expm1(d) - d, FP16, Exhaustive(), EXPM1_LAW)
    row, judgement = audit(fn, FP16, Exhaustive(), EXPM1_LAW)
    assert row.tally.nan.n == row.tally.nonfinite.n == 1
    assert row.tally.max_ulp.value == clean.tally.max_ulp.value
    assert "KLA201" in codes(judgement)


def test_infinite_for_finite_is_counted_apart():
    """An early overflow is a mismatch, not an error of so many ulp."""

    def fn(xp, d):
        return np.where(d > np.float16(10), np.float16(np.inf), xp.expm1(d) - d)

    row, judgement = audit(fn, FP16, Exhaustive(), EXPM1_LAW)
    assert row.tally.nonfinite.n > 100
    assert "KLA202" in codes(judgement)


def test_not_zero_at_zero_fails():
    """k3(0) must be 0; a sampled grid without 0 still finds it among the specials."""
    _, judgement = audit(lambda xp, d: xp.where(d == 0, d + 1, xp.expm1(d) - d), law=EXPM1_LAW)
    assert "KLA102" in codes(judgement)


def test_a_candidate_that_raises_is_a_failed_row():
    """The reason is the exception, in one line."""

    def fn(xp, d):
        raise RuntimeError("no kernel\nfor you")

    _, judgement = audit(fn)
    assert judgement.verdict == "fail"
    assert judgement.reason == "raised RuntimeError: no kernel"
    assert codes(judgement) == {"KLA200"}


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda xp, d: d[:-1], "returned shape"),
        (lambda xp, d: d.astype(np.float64), "returned dtype float64, expected float32"),
        (lambda xp, d: 1.0, "returned float"),
    ],
)
def test_a_candidate_of_the_wrong_kind_is_a_failed_row(fn, reason):
    """Wrong shape, dtype or type: the row fails with the reason."""
    _, judgement = audit(fn)
    assert judgement.verdict == "fail"
    assert reason in judgement.reason


def test_the_others_go_on_when_one_fails():
    """A failing formulation leaves its neighbours measured."""
    from conftest import Silent

    def bad(xp, d):
        raise ValueError("bad")

    good = find_formulations(K3, ["expm1"])[0]
    broken = Formulation("broken", "k3", bad, "", "", None)
    block = Block(K3, "value", FP32, parse_grid("0.1:1:50", 10), (broken, good), (NUMPY,))
    rows = {r.formulation.name: judge(r).verdict for r in sweep([block], 0, 5, Silent())}
    assert rows == {"broken": "fail", "expm1": "pass"}


def test_a_length_dependent_candidate_is_told():
    """A result that changes with the length of the array is a finding with the lengths."""

    def fn(xp, d):
        y = xp.expm1(d) - d
        return y if len(d) > 3 else y * 2

    _, judgement = audit(fn, law=EXPM1_LAW, grid="0.5:1:100")
    (finding,) = (f for f in judgement.findings if f.code == "KLA105")
    assert "lengths that differ: 1, 2, 3)" in finding.message


def test_a_vacuous_law_is_not_a_pass():
    """Where the bound is 1 or more even a perfect candidate is vacuous, unless a bound is asked for."""
    below = "1e-3:7e-3:30"
    assert audit(perfect(BF16), BF16, below, EXPM1_LAW)[1].verdict == "vacuous"
    assert audit(perfect(BF16), BF16, below, EXPM1_LAW, max_ulp=0.5)[1].verdict == "pass"


def test_a_zero_result_for_an_infinite_truth_is_a_mismatch():
    """Nothing slips between the counts: zero where the truth is infinite is a non-finite mismatch."""
    row, _ = audit(lambda xp, d: d * 0, FP16, Exhaustive())
    truth_infinite = sum(1 for x in FP16.finite_values().astype(float) if x > 11.1)
    assert row.tally.nonfinite.n >= truth_infinite


def test_exact_error_is_rational():
    """The scalar ulp error is exact: a third of an ulp is a third."""
    from kl_audit.ulp import ulp, ulp_error

    t = Fraction(1) + Fraction(1, 3) * ulp(Fraction(1), FP32)
    assert ulp_error(1.0, t, FP32) == Fraction(-1, 3)


def test_a_compiler_that_does_nothing_is_not_passed_off_as_compiled(monkeypatch):
    """torch.compile that hands the function back gives a skipped row, not eager's figures."""
    import torch
    from conftest import run

    monkeypatch.setattr(torch, "compile", lambda fn, **options: fn)
    row, judgement = run(where=("torch/compile",), grid="0.1,0.2")["expm1", "torch-compile"]
    assert judgement.verdict == "skipped"
    assert "ran eagerly" in judgement.reason
    assert row.tally.points == 0
