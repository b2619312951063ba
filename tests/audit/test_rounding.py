"""The split of an error into the rounding of the log-probabilities and the formula's, by mpmath."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from audit.helpers import audit, findings, one

from kl_audit.formats import find_format

PAIR = "d = ref - policy; exp(d) - d - 1"
SAMPLES = 1024


def k3(policy, reference):
    """k3 of two numbers, by mpmath; digits to spare for a d of 1e-6."""
    with mpmath.workdps(40):
        d = mpmath.mpf(reference) - mpmath.mpf(policy)
        return mpmath.exp(d) - d - 1


def draws(seed, k, lo, hi):
    """The documented draws: |d| log-uniform in its decade, likely to rare policies, both at most 0."""
    rng = np.random.default_rng(np.random.SeedSequence((seed, 5, k)))
    d = np.exp(rng.uniform(np.log(lo), np.log(hi), SAMPLES)) * rng.choice([-1.0, 1.0], SAMPLES)
    policy = -np.exp(rng.uniform(np.log(2.0**-8), np.log(16.0), SAMPLES))
    policy = np.minimum(policy, -np.maximum(d, 0))
    return policy, policy + d


def split(fmt, policy, reference):
    """(what rounding did, what the formula added) relative to the unrounded truth, one by one."""
    p, r = fmt.cast(policy), fmt.cast(reference)
    d = r - p
    got = np.exp(d) - d - np.ones_like(d)
    before, added = [], []
    rows = (policy, reference, p.astype(float), r.astype(float), got.astype(float))
    for a, b, x, y, g in zip(*(column.tolist() for column in rows), strict=True):
        ideal, seen = k3(a, b), k3(x, y)
        before.append(float(abs(seen - ideal) / ideal))
        added.append(float(abs(g - seen) / ideal))
    return np.array(before), np.array(added)


def rows(dtype, seed=0):
    return one(audit(expr=PAIR, quantity="k3-pair", backends="numpy", dtypes=dtype, only="value", seed=seed,
                     per_decade=50))  # fmt: skip


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_the_split_is_that_of_mpmath(dtype):
    """Median and maximum of both parts, in every decade, agree with mpmath on the same draws."""
    parts = rows(dtype).rounding
    assert [p.lo for p in parts] == [float(f"1e{k}") for k in range(-6, 1)]
    for k, part in enumerate(parts):
        assert part.points == SAMPLES
        before, added = split(find_format(dtype), *draws(0, k, part.lo, part.hi))
        assert part.input_median == pytest.approx(np.median(before), rel=1e-9, abs=1e-12)
        assert part.input_max == pytest.approx(before.max(), rel=1e-9)
        assert part.formula_median == pytest.approx(np.median(added), rel=1e-9, abs=1e-12)
        assert part.formula_max == pytest.approx(added.max(), rel=1e-9)


def test_the_seed_chooses_the_draws():
    """Another seed gives other draws, and the same seed the same ones."""
    part = rows("bf16", seed=3).rounding[-1]
    before, _ = split(find_format("bf16"), *draws(3, 6, part.lo, part.hi))
    assert part.input_max == pytest.approx(before.max(), rel=1e-9)
    assert part != rows("bf16").rounding[-1]


@pytest.mark.parametrize(
    ("dtype", "near", "far"),
    [("bf16", 2.0**-9, 2.0**-4), ("fp16", 2.0**-12, 2.0**-7)],
)
def test_the_spacing_of_log_probabilities_is_told(dtype, near, far):
    """bfloat16 numbers just inside -0.5 are 2^-9 apart, near -10 2^-4: the finding says both."""
    fmt = find_format(dtype)
    step = lambda x: abs(float(np.nextafter(fmt.cast([x]), fmt.cast([-100]))[0]) - float(fmt.cast([x])[0]))  # noqa: E731
    inside = float(np.nextafter(fmt.cast([-0.5]), fmt.cast([0]))[0])
    assert step(inside) == near
    assert step(-10.0) == far
    row = rows(dtype)
    message = findings(row, "note")["KLA501"].message
    name = fmt.name
    assert f"{name} log-probabilities are {near:.3g} apart just inside -0.5 and {far:.3g} near -10" in message


def test_the_finding_names_the_highest_decade_that_is_ruined():
    """KLA501 names the highest decade in which the input's median error is 10 % or more."""
    row = rows("bf16")
    ruined = [p for p in row.rounding if p.input_median >= 0.1]
    top = ruined[-1]
    assert (top.lo, top.hi) == (1e-3, 1e-2)
    message = findings(row, "note")["KLA501"].message
    assert f"for |d| in [{top.lo:g}, {top.hi:g})" in message
    assert f"{top.input_median:.0%} (median" in message


def test_float32_log_probabilities_are_not_blamed():
    """In float32 the rounding of the input stays below 10 % in every decade: no KLA501."""
    row = rows("fp32")
    assert max(p.input_median for p in row.rounding) < 0.1
    assert "KLA501" not in findings(row)


def test_a_right_formula_adds_little_to_a_ruined_input():
    """A formula in float64 adds rounding alone; what the input lost stays lost, and is told all the same."""
    expr = "d = float64(ref) - float64(policy); bfloat16(where(abs(d) < 0.1, d*d*(1/2 + d*(1/6 + d*(1/24 + d*(1/120 + d/720)))), expm1(d) - d))"  # noqa: E501
    row = one(
        audit(expr=expr, quantity="k3-pair", backends="numpy", dtypes="bf16", only="value", per_decade=20)
    )
    naive = {p.lo: p for p in rows("bf16").rounding}
    for part in row.rounding:
        assert part.input_max == naive[part.lo].input_max
        assert part.formula_median <= 2.0**-8 * max(1.0, part.input_median)
    assert "KLA501" in findings(row, "note")


def test_gradients_and_quantities_of_d_have_no_split():
    """There is nothing to split where no log-probabilities are rounded, or at given inputs."""
    (row,) = audit(expr="exp(d) - d - 1", quantity="k3", backends="numpy", only="value", grid="0.1:1:9")
    assert row.rounding == []
    (row,) = audit(expr=PAIR, quantity="k3-pair", backends="numpy", only="value", at="policy=-1 reference=-2")
    assert row.rounding == []
    slope = audit(expr=PAIR, quantity="k3-pair", backends="torch", modes="eager", only="gradient",
                  grid="0.1:1:9")  # fmt: skip
    assert all(r.rounding == [] for r in slope)


def test_overflow_is_an_infinite_addition():
    """Where the formula overflows it has added infinity: the maximum says so, the median does not."""
    expr = "d = ref - policy; exp(20*d) / exp(20*d) * (expm1(d) - d)"
    row = one(audit(expr=expr, quantity="k3-pair", backends="numpy", only="value", per_decade=20))
    assert row.rounding[-1].formula_max == math.inf
    assert math.isfinite(row.rounding[0].formula_max)
