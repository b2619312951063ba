"""Where a candidate breaks, held against a search of every number of the format by other means."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from audit.helpers import EXPM1, HYBRID, NAIVE, WEIGHTED, eager, figures, findings, k3, one, threshold

from kl_audit.formats import BF16, FP16, FP32


def weighted_slope(d):
    """The derivative of the weighted form, by torch."""
    d = d.clone().requires_grad_()
    (torch.exp(d.detach() - d) * (torch.exp(d) - d - 1)).sum().backward()
    return d.grad


def naive(d):
    return torch.exp(d) - d - 1


def expm1_form(d):
    return torch.expm1(d) - d


def floats(low, high):
    """Every float32 in [low, high), a multiple of 64 of them: no short tail."""
    first, last = (int(np.float32(x).view(np.uint32)) for x in (low, high))
    return torch.from_numpy(np.arange(first, last - (last - first) % 64, dtype=np.uint32).view(np.float32))


def halves(dtype):
    """Every finite number of a 16-bit dtype, positive ones first."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    return bits[torch.isfinite(bits)]


def series(x):
    """k3 for |x| < 0.02 in float64 by its series: good to a few 1e-16."""
    total = np.ones_like(x)
    for n in range(8, 2, -1):
        total = 1 + x / n * total
    return x * x / 2 * total


def test_the_series_used_here_is_k3():
    """The float64 series of these tests agrees with mpmath to 1e-15."""
    for x in (1e-6, -3e-4, 0.004731711, 0.0199, -0.0199):
        assert abs(series(np.array([x]))[0] / k3(x) - 1) < 1e-15


def weighted(dtype="fp32"):
    return one(eager(expr=WEIGHTED, quantity="weighted-k3", dtypes=dtype, only="gradient"), "gradient")


def test_weighted_k3_pulls_by_32_at_20():
    """The float32 gradient of the weighted form is 16 at d = 18 and 32 at d = 20, where it must be d."""
    rows = eager(expr=WEIGHTED, quantity="weighted-k3", at="d=18,20", only="gradient")
    (row,) = rows
    got = {w.inputs[0]: (w.got, e) for e, w in row.judgement.worst}
    assert got[18.0][0] == 16.0
    assert got[20.0][0] == 32.0
    assert figures(row).core_rel == pytest.approx(0.6, rel=1e-6)
    assert "KLA403" in findings(row, "error")


def test_weighted_k3_is_zero_from_the_exact_first_number():
    """Of all float32 numbers the first with a zero gradient is the one that bisection names."""
    d = floats(2, 32)
    slope = weighted_slope(d)
    first = d[slope == 0][0].item()
    found = threshold(weighted(), "first-zero")
    assert found.x == first
    assert 20.1 < first < 20.25
    assert (found.got, found.truth) == (0.0, pytest.approx(first, rel=1e-15))
    assert found.how == "bisection"
    assert torch.all(slope[d > 20.25] == 0)


def test_weighted_k3_is_off_from_the_exact_first_number():
    """The first float32 number of 1 or more whose gradient is off by 1 % is the one that is named."""
    d = floats(1, 32)
    slope = weighted_slope(d).double().numpy()
    wide = d.double().numpy()
    first = wide[np.abs(slope - wide) > 0.01 * wide][0]
    assert threshold(weighted(), "wrong-from").x == first


def test_weighted_k3_is_nan_where_exp_overflows():
    """NaN begins at the first float32 number whose exp is infinite, 88.7228...; 88.75 is beyond it."""
    d = floats(64, 128)
    first = d[torch.isnan(weighted_slope(d))][0].item()
    found = threshold(weighted(), "first-nan")
    assert found.x == first
    assert 88.7228 < first < 88.75
    with mpmath.workdps(40):
        edge = mpmath.log(mpmath.mpf(2) ** 128 - mpmath.mpf(2) ** 103)
        assert abs(first - edge) < 2.0**-16


def test_weighted_k3_in_bfloat16_is_zero_from_7_75():
    """Of all bfloat16 numbers the first with a zero gradient (truth 1e-3 or more) beyond 1 is named."""
    d = halves(torch.bfloat16)
    d = d[d >= 0.25].sort().values
    first = d[weighted_slope(d) == 0][0].item()
    found = threshold(weighted("bf16"), "first-zero")
    assert found.how == "exhaustive"
    assert found.x == first
    assert 7.6 < first <= 7.75
    assert torch.all(weighted_slope(d[(d >= 9) & (d < 88)]) == 0)
    ragged = weighted_slope(d[(d >= 7.75) & (d < 9)])
    assert set(ragged.tolist()) == {0.0, 16.0}


@pytest.mark.parametrize(("name", "level"), [("accurate-10%", 0.1), ("accurate-1%", 0.01)])
@pytest.mark.parametrize(("form", "expr"), [(naive, NAIVE), (expm1_form, EXPM1)])
def test_accuracy_thresholds_of_float32_are_witnesses(form, expr, name, level):
    """The number named is off by more than the level by mpmath, and none beyond 1.25 times it is."""
    found = threshold(one(eager(expr=expr, quantity="k3", only="value")), name)
    assert abs(found.got - k3(found.x)) / k3(found.x) > level
    assert found.got == form(torch.full((64,), found.x, dtype=torch.float32))[0].item()
    assert found.truth == pytest.approx(float(k3(found.x)), rel=1e-15)
    assert last_missed(form, level, 1.25 * abs(found.x), 1.5 * abs(found.x)) is None


def last_missed(form, level, low, high):
    """Return the largest |d| in [low, high), of either sign, at which a form of k3 misses the level."""
    above = floats(low, high)
    missed = []
    for d in (above, -above):
        truth = series(d.double().numpy())
        hits = np.flatnonzero(np.abs(form(d).double().numpy() - truth) > level * truth)
        missed += [abs(d[hits[-1]].item())] if len(hits) else []
    return max(missed, default=None)


@pytest.mark.parametrize(("name", "level"), [("accurate-10%", 0.1), ("accurate-1%", 0.01)])
@pytest.mark.parametrize(("form", "expr"), [(naive, NAIVE), (expm1_form, EXPM1)])
def test_accuracy_thresholds_of_float32_are_the_last_ones(form, expr, name, level):
    """ "Off by more than 1 % up to |d| = ..." is the last such number of the format."""
    found = threshold(one(eager(expr=expr, quantity="k3", only="value")), name)
    assert abs(found.x) == last_missed(form, level, abs(found.x), abs(found.x) * 1.25)


@pytest.mark.parametrize(("form", "expr"), [(naive, NAIVE), (expm1_form, EXPM1)])
def test_accuracy_thresholds_of_bfloat16_are_exact(form, expr):
    """Of all bfloat16 numbers up to 1 the largest that misses the level is named, by mpmath's errors."""
    row = one(eager(expr=expr, quantity="k3", dtypes="bf16", only="value"))
    d = halves(torch.bfloat16)
    d = d[(d.abs() <= 1) & (d.abs() >= 1e-4)]
    pad = torch.cat([d, d.new_zeros(-len(d) % 64)])
    got = form(pad)[: len(d)].float().tolist()
    errors = [abs(y - k3(x)) / k3(x) for x, y in zip(d.float().tolist(), got, strict=True)]
    for name, level in (("accurate-10%", 0.1), ("accurate-1%", 0.01)):
        missed = [abs(x) for x, e in zip(d.float().tolist(), errors, strict=True) if e > level]
        found = threshold(row, name)
        assert found.how == "exhaustive"
        assert abs(found.x) == max(missed)


def slope_error(x):
    """The relative error of torch's derivative of the expm1 form, by mpmath."""
    d = torch.tensor(x, requires_grad=True)
    expm1_form(d).backward()
    with mpmath.workdps(40):
        return float(abs(d.grad.item() - mpmath.expm1(x)) / mpmath.expm1(x))


def test_the_gradient_of_the_expm1_form_errs_as_the_naive_one():
    """torch differentiates expm1(d) as expm1(d) + 1: 4.6 % off near 1e-6, as is exp(d) - 1."""
    (row,) = eager(expr=EXPM1, quantity="k3", at="d=1.00001e-6", only="gradient")
    error = slope_error(float(np.float32(1.00001e-6)))
    assert figures(row).core_rel == pytest.approx(error, rel=1e-9)
    assert 0.046 < error < 0.0465
    assert "KLA403" in findings(row, "error")


def test_one_millionth_is_judged_in_float32():
    """--max-rel holds from 1e-6 on, and 1e-6 as float32 stores it is meant: 4.6 % off is no pass."""
    (row,) = eager(expr=EXPM1, quantity="k3", at="d=1e-6", only="gradient")
    assert slope_error(float(np.float32(1e-6))) > 0.046
    assert row.judgement.verdict == "fail"


def test_an_infinite_input_changes_nothing_for_the_others():
    """A formula of one d is elementwise, with or without -inf among the inputs: 4.6 % off is no pass."""
    for at in ("d=1.00001e-6,30", "d=1.00001e-6,30,-inf"):
        (row,) = eager(expr=EXPM1, quantity="k3", at=at, only="gradient")
        assert figures(row).verdict == "fail", at


def test_the_gradient_thresholds_of_naive_and_expm1_are_the_same():
    """In torch the two forms have one gradient, and break at the same number."""
    rows = [one(eager(expr=e, quantity="k3", only="gradient"), "gradient") for e in (NAIVE, EXPM1)]
    at = {threshold(r, "accurate-1%").x for r in rows}
    assert len(at) == 1
    assert slope_error(at.pop()) > 0.01


@pytest.mark.parametrize("sign", [1, -1])
def test_the_hybrid_in_float16_has_a_nan_gradient_from_256(sign):
    """where() differentiates the series branch, which overflows: NaN for |d| >= 256, not below."""
    row = one(eager(expr=HYBRID, quantity="k3", dtypes="fp16", only="gradient"), "gradient")
    found = threshold(row, "first-nan", sign)
    assert found.x == sign * 256.0
    assert found.how == "exhaustive"
    assert "KLA401" in findings(row, "error")
    assert row.row.tally.nan.n == 2 * sum(1 for x in FP16.finite_values().astype(float) if x >= 256)


def test_a_candidate_without_a_threshold_has_none():
    """A form that is right everywhere it can be has only the overflow of the quantity itself."""
    row = one(eager(expr="d*d/2", quantity="k2", dtypes="bf16", only="gradient"), "gradient")
    assert row.judgement.verdict == "pass"
    assert row.thresholds == []


def test_a_threshold_of_a_16_bit_format_is_a_number_of_it():
    """Thresholds are inputs: each is a finite number of its format, and its result is the candidate's."""
    for name, fmt, dtype in (("bf16", BF16, torch.bfloat16), ("fp16", FP16, torch.float16),
                             ("fp32", FP32, torch.float32)):  # fmt: skip
        row = one(eager(expr=NAIVE, quantity="k3", dtypes=name, only="value"))
        assert row.thresholds
        for t in row.thresholds:
            assert float(fmt.cast([t.x])[0]) == t.x
            assert naive(torch.full((64,), t.x, dtype=dtype))[0].item() == t.got
