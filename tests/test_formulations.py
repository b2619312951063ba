"""Formulations: one expression for every namespace, each with a law, a source and a derivation."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from kl_audit.backends import BACKENDS
from kl_audit.formats import FORMATS, FP32
from kl_audit.formulations import FORMULATIONS, formulations_of
from kl_audit.formulations.k3_hybrid_poly import COEFFICIENTS, HIGH, LOW
from kl_audit.formulations.laws import EXPM1_LAW, NAIVE_LAW


@pytest.mark.parametrize("f", FORMULATIONS, ids=lambda f: f"{f.quantity}-{f.name}")
def test_each_is_documented(f):
    """A formulation has a source, a formula and a derivation in its module; one of d has a law."""
    assert f.law is not None or f.quantity in ("log1mexp", "log-sigmoid", "weighted-k3-pair")
    assert f.source
    assert f.formula
    assert len(f.derivation) > 20


@pytest.mark.parametrize("f", formulations_of("k3"), ids=lambda f: f.name)
@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda f: f.short)
def test_each_runs_everywhere_in_its_dtype(f, backend, fmt):
    """Every formulation keeps the dtype in every back end, and is about k3 where that is easy."""
    if f.reason_not_for(fmt):
        pytest.skip(f.reason_not_for(fmt))
    x = fmt.cast([-3.0, -1.5, 0.75, 1.5, 2.0])
    got = BACKENDS[backend].evaluator(f.fn, "eager", "cpu", fmt)(x)
    assert got.dtype == fmt.dtype
    want = [float(mpmath.exp(v) - v - 1) for v in x.astype(np.float64).tolist()]
    assert got.astype(np.float64) == pytest.approx(want, rel=40 * fmt.u)


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda f: f.short)
def test_the_polynomial_is_cut_where_it_may_be(fmt):
    """The truncated tail of hybrid-poly is below 2^-(p+2) of k3 over its interval, by mpmath."""
    with mpmath.workprec(300):
        for i in range(301):
            x = mpmath.mpf(LOW) + (mpmath.mpf(HIGH) - LOW) * i / 300
            if x == 0:
                continue
            k3 = mpmath.exp(x) - x - 1
            exact = [mpmath.mpf(2) / math.factorial(n + 3) for n in range(len(COEFFICIENTS[fmt.name]))]
            series = x * x / 2 * (1 + sum(c * x ** (n + 1) for n, c in enumerate(exact)))
            assert abs(series / k3 - 1) < mpmath.mpf(2) ** -(fmt.precision + 2)


def test_pointwise_bounds_meet_the_decade_laws():
    """Near 0 the pointwise bounds are the laws: 2u/|x| and 4u/x^2."""
    x = np.array([1e-4, -1e-4])
    terms = (x, np.exp(x), np.expm1(x), x * x / 2)
    assert EXPM1_LAW.pointwise(FP32, terms) * 1e-4 / FP32.u == pytest.approx(2, rel=1e-3)
    assert NAIVE_LAW.pointwise(FP32, terms) * 1e-8 / FP32.u == pytest.approx(4, rel=1e-3)


def test_a_law_is_vacuous_where_promised():
    """2u/|x| reaches 1 at |x| = 2u: 2^-7 in bfloat16."""
    bf16 = FORMATS["bf16"]
    assert EXPM1_LAW.decade_bound(bf16, 2.0**-7, 0.01) == 1
