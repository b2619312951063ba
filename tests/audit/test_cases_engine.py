"""Break the audit on cases on purpose, and demand the right verdict; truths by mpmath."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch

from kl_audit.audit import cases as engine
from kl_audit.audit.cases import Truths, try_out
from kl_audit.audit.tried import Problem
from kl_audit.audit.vectors import cases_of, problem_of
from kl_audit.backends import BACKENDS
from kl_audit.checks import Bounds
from kl_audit.formats import BF16, FP16, FP32
from kl_audit.formulations.vectors import vector_formulations_of
from kl_audit.quantities.vector_base import Case
from kl_audit.quantities.vectors import find_vector
from kl_audit.sweep import Target
from kl_audit.ulp import round_to_format

NUMPY = Target(BACKENDS["numpy"], "eager", "cpu")
TORCH = Target(BACKENDS["torch"], "eager", "cpu")
JAX = Target(BACKENDS["jax"], "eager", "cpu")

LSE = problem_of(find_vector("logsumexp"))
ENTROPY = problem_of(find_vector("entropy"))
KL = problem_of(find_vector("kl-forward"))
SELECTED = problem_of(find_vector("selected-log-prob"))
MEAN = problem_of(find_vector("masked-mean"))

#: A product of two numbers: correctly rounded by every framework.
PRODUCT = Problem("product", ("a", "b"), ("a", "b"), ("a", "b"), lambda ops, a, b: a * b)
FIGURES = Problem("exp", ("z",), ("z",), ("z",), lambda ops, z: ops.exp(z))


def case(tag="", **inputs):
    """A case of float32 numbers, as float64, and masks."""
    arrays = {n: np.asarray(v) for n, v in inputs.items()}
    wide = {
        n: v.astype(np.float32).astype(np.float64) if v.dtype.kind == "f" else v for n, v in arrays.items()
    }
    return Case("made", wide, tag, max(v.size for v in arrays.values()))


def run(problem, fn, cases, fmt=FP32, target=TORCH, max_rel=0.01, max_ulp=None, **more):
    """Try a candidate; return (value row, gradient rows)."""
    outputs = ("value", "gradient")
    truths, bounds = Truths(problem, fmt), Bounds(max_ulp, max_rel)
    rows = try_out(problem, "candidate", fn, fmt, target, cases, truths, bounds, outputs,
                   more.pop("dtypes", {}), **more)  # fmt: skip
    return rows[0], rows[1:]


def codes(row, level="error"):
    return {c for c, f in row.findings.items() if f.level == level}


LOGITS = case(logits=[0.5, -1.25, 3.0, 2.0])
PAIR = case(student=[0.5, -1.25, 3.0], teacher=[1.0, 0.25, -2.0])


def right_lse(xp, z):
    return xp.logsumexp(z)


def test_a_right_candidate_passes():
    """logsumexp of the framework, on ordinary logits: value and gradient pass, with mpmath's figures."""
    value, (slope,) = run(LSE, right_lse, [LOGITS])
    assert (value.verdict, slope.verdict) == ("pass", "pass")
    assert value.findings == slope.findings == {}
    z = [mpmath.mpf(x) for x in LOGITS.inputs["logits"].tolist()]
    with mpmath.workdps(50):
        truth = mpmath.log(sum(map(mpmath.exp, z)))
        got = mpmath.mpf(value.worst.got)
        assert value.max_rel == pytest.approx(float(abs(got - truth) / truth), rel=1e-9)
        assert value.max_ulp == pytest.approx(float(abs(got - truth) / mpmath.mpf(2) ** -22), rel=1e-9)
    assert slope.cosine == pytest.approx(1, abs=1e-12)


def test_the_gradient_figure_is_that_of_mpmath():
    """The largest error of logsumexp's gradient, over its largest entry: a truth one ulp off shows."""
    _, (slope,) = run(LSE, right_lse, [LOGITS])
    z = torch.tensor(LOGITS.inputs["logits"].astype(np.float32), requires_grad=True)
    (got,) = torch.autograd.grad(torch.logsumexp(z, 0), z)
    with mpmath.workdps(50):
        parts = [mpmath.exp(mpmath.mpf(x)) for x in LOGITS.inputs["logits"].tolist()]
        right = [p / mpmath.fsum(parts) for p in parts]
        errors = [abs(mpmath.mpf(g) - r) for g, r in zip(got.tolist(), right, strict=True)]
        figure = (max(errors) - mpmath.mpf(2) ** -149) / max(right)
    assert 0 < figure < 2**-22
    assert slope.max_rel == pytest.approx(float(figure), rel=1e-6)


@pytest.mark.parametrize("target", [NUMPY, TORCH, JAX], ids=str)
def test_right_candidates_pass_on_the_generated_cases(target):
    """The library's masked mean passes on generated cases of two sizes, in every framework."""
    mean = find_vector("masked-mean")
    cases = cases_of(mean, FP32, (4, 16), 0)
    sound = next(f for f in vector_formulations_of("masked-mean") if f.sound)
    value, slopes = run(MEAN, sound.fn, cases, target=target)
    assert value.verdict == "pass", value.findings
    assert value.cases == len(cases) > 10
    assert all(s.verdict == ("skipped" if target is NUMPY else "pass") for s in slopes)


def test_one_ulp_off_fails_at_half_an_ulp():
    """A product one step too high fails --max-ulp 0.5, and the rounded one passes it."""
    at = [case(a=[1.5, 0.1, 7.0], b=[3.0, 0.3, 0.7])]
    right, _ = run(PRODUCT, lambda xp, a, b: a * b, at, target=NUMPY, max_ulp=0.5)
    assert right.verdict == "pass"
    assert right.max_ulp <= 0.5

    def off(xp, a, b):
        return np.nextafter(a * b, np.float32(np.inf))

    wrong, _ = run(PRODUCT, off, at, target=NUMPY, max_ulp=0.5)
    assert wrong.verdict == "fail"
    assert codes(wrong) == {"KLA001"}
    ulps = []
    for x, y in zip(at[0].inputs["a"].tolist(), at[0].inputs["b"].tolist(), strict=True):
        step = np.nextafter(np.float32(x) * np.float32(y), np.float32(np.inf))
        truth = Fraction(x) * Fraction(y)
        ulps.append(abs(Fraction(float(step)) - truth) / Fraction(2) ** (math.floor(math.log2(truth)) - 23))
    assert wrong.max_ulp == pytest.approx(float(max(ulps)), rel=1e-9)
    loose, _ = run(PRODUCT, off, at, target=NUMPY, max_ulp=1.5)
    assert loose.verdict == "pass"


def sign_flipped(xp, z):
    """The value of logsumexp, with the gradient of -logsumexp."""
    y = xp.logsumexp(z)
    return 2 * xp.stop_gradient(y) - y


def doubled(xp, z):
    """The value of logsumexp, with twice its gradient."""
    y = xp.logsumexp(z)
    return 2 * y - xp.stop_gradient(y)


@pytest.mark.parametrize("target", [TORCH, JAX], ids=str)
def test_a_gradient_of_the_wrong_sign_is_found(target):
    """Value right, gradient reversed: cosine -1, KLA404 and KLA403 with an error of 2."""
    value, (slope,) = run(LSE, sign_flipped, [LOGITS], target=target)
    assert value.verdict == "pass"
    assert slope.verdict == "fail"
    assert codes(slope) == {"KLA403", "KLA404"}
    assert slope.cosine == pytest.approx(-1, abs=1e-12)
    assert slope.max_rel == pytest.approx(2, rel=1e-5)
    assert "cosine -1.0000000 with the true gradient" in slope.findings["KLA404"].message


def test_a_gradient_twice_too_long_is_found():
    """The direction is right, the length is not: KLA403 alone, error 1."""
    _, (slope,) = run(LSE, doubled, [LOGITS])
    assert codes(slope) == {"KLA403"}
    assert slope.cosine == pytest.approx(1, abs=1e-12)
    assert slope.max_rel == pytest.approx(1, rel=1e-5)


def test_a_gradient_of_0_is_found():
    """A detached result pulls nowhere: KLA402."""
    _, (slope,) = run(LSE, lambda xp, z: xp.stop_gradient(xp.logsumexp(z)) + 0 * xp.sum(z), [LOGITS])
    assert "KLA402" in codes(slope)
    assert slope.zeros == 1


def test_a_single_wrong_entry_of_a_gradient_is_found():
    """One entry of four off by 5 % of the largest fails, and is the witness."""

    def fn(xp, z):
        extra = xp.take(z, 1)
        return xp.logsumexp(z) + xp.constant(0.05, z) * (extra - xp.stop_gradient(extra))

    _, (slope,) = run(LSE, fn, [LOGITS])
    assert codes(slope) == {"KLA403"}
    assert slope.worst.index == 1
    with mpmath.workdps(30):
        w = [mpmath.exp(x) for x in LOGITS.inputs["logits"].tolist()]
        assert float(slope.worst.truth) == pytest.approx(float(w[1] / sum(w)), rel=1e-15)
        assert slope.max_rel == pytest.approx(float(0.05 * sum(w) / max(w)), rel=1e-5)


def test_a_nan_in_a_masked_slot_that_gets_through_is_found():
    """x * m keeps a NaN where m is 0: KLA108 for the value, KLA401 for the gradient; where() does not."""
    hidden = case("masked", values=[1.0, np.nan, 3.0], mask=np.array([True, False, True]))
    plain = case("", values=[1.0, 2.0, 3.0], mask=np.array([True, False, True]))

    def product(xp, x, m):
        m = xp.like(m, x)
        return xp.sum(x * m) / xp.sum(m)

    def chosen(xp, x, m):
        return xp.sum(xp.where(m, x, xp.full((3,), 0.0, x))) / xp.sum(xp.like(m, x))

    value, (_,) = run(MEAN, product, [plain, hidden])
    assert codes(value) == {"KLA108"}
    assert "NaN because of what masked slots hold" in value.findings["KLA108"].message
    assert value.nan == 1
    value, (slope,) = run(MEAN, chosen, [plain, hidden])
    assert (value.verdict, slope.verdict) == ("pass", "pass")


def test_a_nan_gradient_behind_a_good_value_is_found():
    """where() after the product hides the NaN from the value and not from the gradient: KLA401."""
    hidden = case("masked", values=[1.0, 200.0, 3.0], mask=np.array([True, False, True]))
    problem = dataclasses.replace(
        MEAN, reference=lambda ops, values, mask: ops.sum(ops.exp(ops.take(values, [0, 2])))
    )

    def fn(xp, x, m):
        e = xp.exp(x)
        return xp.sum(xp.where(m, e, xp.full((3,), 0.0, x)))

    value, (slope,) = run(problem, fn, [hidden])
    assert value.verdict == "pass"
    assert codes(slope) == {"KLA401"}
    assert slope.nan == 1
    assert slope.worst is None or slope.worst.index != 1


@pytest.mark.parametrize("wrt", ["value", "gradient"])
def test_a_wrong_bulk_oracle_is_found(monkeypatch, wrt):
    """The bulk truth off by 1e-6: the recomputation by intervals disagrees, KLA902 and no pass."""
    true = engine.evaluate

    def lying(*args, **options):
        exact = true(*args, **options)

        def shift(output):
            total = output.truth.sum
            grown = dataclasses.replace(total, hi=total.hi * (1 + 1e-6))
            object.__setattr__(output.truth, "sum", grown)
            values = output.fractions
            object.__setattr__(
                output, "fractions", lambda i=None: [f * (1 + Fraction(1, 10**6)) for f in values(i)]
            )

        for output in [exact.value] if wrt == "value" else exact.gradients.values():
            shift(output)
        return exact

    monkeypatch.setattr(engine, "evaluate", lying)
    value, (slope,) = run(LSE, right_lse, [LOGITS])
    row, other = (value, slope) if wrt == "value" else (slope, value)
    assert row.verdict == "fail"
    assert "KLA902" in codes(row)
    assert "the two oracles disagree" in row.findings["KLA902"].message
    assert other.verdict == "pass"


def test_a_reference_that_differs_by_arithmetic_is_found():
    """A reference that is 1e-6 off on balls and right on intervals: the oracles disagree."""

    def reference(ops, logits):
        right = ops.logsumexp(logits)
        return right * (1 + ops.number(Fraction(1, 10**6))) if _on_balls(logits) else right

    value, _ = run(dataclasses.replace(LSE, reference=reference), right_lse, [LOGITS])
    assert codes(value) == {"KLA902"}


def _on_balls(x):
    """Whether an exact array is of flint's balls."""
    return "arb" in {type(v).__name__ for v in np.ravel(np.asarray(x.values)).tolist()}


def test_a_reference_that_cannot_be_certified_is_found():
    """What cannot be told from 0 is refused, and the row fails with KLA901 and the case's name."""
    hard = Problem("hard", ("z",), ("z",), (), lambda ops, z: ops.where(ops.exp(z) * ops.exp(-z) > 1, z, -z))
    value, _ = run(hard, lambda xp, z: z, [case(z=[0.3])])
    assert value.verdict == "fail"
    assert codes(value) == {"KLA901"}
    assert value.failed.endswith("(made)")


def test_not_0_on_identical_inputs_is_found():
    """The divergence of a row from itself is 0: 1e-7 there is KLA102, though no relative error says so."""
    z = [0.5, -1.25, 3.0]
    same = case("identical", student=z, teacher=z)

    def kl(xp, s, t):
        log_s, log_t = xp.log_softmax(s), xp.log_softmax(t)
        return xp.sum(xp.exp(log_t) * (log_t - log_s))

    value, _ = run(KL, kl, [same, PAIR])
    assert value.verdict == "pass"
    value, _ = run(KL, lambda xp, s, t: kl(xp, s, t) + xp.constant(1e-7, s), [same, PAIR])
    assert codes(value) == {"KLA102"}
    assert "not 0 on identical inputs" in value.findings["KLA102"].message


def test_negative_where_nothing_negative_is_possible():
    """A divergence below 0 and a log-probability above 0 are beyond the limits: KLA101, KLA107."""
    value, _ = run(KL, lambda xp, s, t: xp.sum(s - s) - xp.constant(1e-3, s), [PAIR])
    assert {"KLA101", "KLA001"} <= codes(value)
    assert value.negatives == 1
    likely = Case("likely", {"logits": np.array([0.0, -20.0]), "index": 0}, "", 2)
    value, _ = run(SELECTED, lambda xp, z, i: xp.take(z, 0) + xp.constant(1e-9, z), [likely])
    assert "KLA107" in codes(value)


def test_an_entropy_above_log_v_is_found():
    """No entropy of four tokens is above log 4: KLA107 with the limit."""
    flat = case(logits=[0.0, 0.0, 0.0, 0.0])

    def entropy(xp, z, extra=0.0):
        log_p = xp.log_softmax(z)
        return -xp.sum(xp.exp(log_p) * log_p) * xp.constant(1 + extra, z)

    value, _ = run(ENTROPY, entropy, [flat])
    assert value.verdict == "pass"
    value, _ = run(ENTROPY, lambda xp, z: entropy(xp, z, 1e-4), [flat])
    assert codes(value) == {"KLA107"}
    assert f"above the greatest possible, {math.log(4):.6g}," in value.findings["KLA107"].message


def test_an_early_overflow_and_a_false_zero_are_found():
    """Infinite for finite is KLA202, 0 for what is not is KLA104; neither enters the maximum."""
    huge = case(logits=[1000.0, 999.0])
    value, (slope,) = run(LSE, lambda xp, z: xp.log(xp.sum(xp.exp(z))), [huge])
    assert codes(value) == {"KLA202"}
    assert (value.infinite, value.max_ulp) == (1, 0.0)
    assert codes(slope) == {"KLA401"}
    tiny = case(logits=[0.0, -30.0])
    value, _ = run(LSE, lambda xp, z: xp.log(xp.sum(xp.exp(z))), [tiny])
    assert {"KLA104", "KLA001"} == codes(value)
    assert value.zeros == 1
    with mpmath.workdps(40):
        truth = mpmath.log1p(mpmath.exp(-30))
        assert float(value.worst.truth) == pytest.approx(float(truth), rel=1e-15)


def test_the_wrong_infinity_is_found():
    """-inf in the place of inf is a mismatch."""
    value, _ = run(FIGURES, lambda xp, z: -xp.exp(z), [case(z=[200.0])], target=NUMPY)
    assert codes(value) == {"KLA202"}
    right, _ = run(FIGURES, lambda xp, z: xp.exp(z), [case(z=[200.0, -np.inf, 1.0])], target=NUMPY)
    assert right.verdict == "pass"


def test_flushing_to_zero_by_the_candidate_is_found():
    """NumPy keeps subnormals, so a candidate that flushes them has a false zero."""
    at = [case(z=[-90.0, 1.0])]

    def flushing(xp, z):
        y = xp.exp(z)
        return np.where(np.abs(y) < np.float32(FP32.smallest_normal), y * 0, y)

    right, _ = run(FIGURES, lambda xp, z: xp.exp(z), at, target=NUMPY)
    assert right.verdict == "pass"
    wrong, _ = run(FIGURES, flushing, at, target=NUMPY)
    assert codes(wrong) == {"KLA104"}


def test_flushing_to_zero_by_the_back_end_is_not_held_against_the_candidate():
    """JAX on the CPU flushes subnormals: that is stated once, and exp(-90) = 0 there is no failure."""
    value, _ = run(FIGURES, lambda xp, z: xp.exp(z), [case(z=[-90.0, 1.0])], target=JAX)
    assert value.verdict == "pass"


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda f: f.short)
def test_a_result_in_a_wider_dtype_is_held_to_that_dtype(fmt):
    """A candidate that returns float32 for 16-bit inputs is judged in ulp of float32."""
    value, _ = run(LSE, lambda xp, z: xp.logsumexp(xp.cast(z, "float32")), [LOGITS], fmt=fmt)
    assert value.result is FP32
    with mpmath.workdps(40):
        truth = mpmath.log(sum(mpmath.exp(x) for x in LOGITS.inputs["logits"].tolist()))
        assert value.max_ulp == pytest.approx(float(abs(value.worst.got - truth) * 2**22), rel=1e-6)


def test_a_case_is_rounded_to_the_format_and_an_input_may_have_its_own():
    """Inputs reach the candidate in the format, or in the dtype that one of them was given."""
    seen = []

    def fn(xp, a, b):
        seen.append((xp.format_of(a), xp.format_of(b)))
        return xp.cast(a, "float32") * xp.cast(b, "float32")

    at = [case(a=[1.5], b=[3.0])]
    value, _ = run(PRODUCT, fn, at, fmt=BF16, target=TORCH, dtypes={"b": FP16})
    assert seen[0] == ("bfloat16", "float16")
    assert value.verdict == "pass"


def test_a_result_of_the_wrong_size_is_a_failed_row():
    """Two numbers where one is expected: the row fails with both sizes and the case."""
    value, (slope,) = run(LSE, lambda xp, z: z, [LOGITS])
    assert value.verdict == slope.verdict == "fail"
    assert value.reason == "returned shape (4,), expected () (made)"
    assert codes(value) == {"KLA200"}


def test_an_exception_is_a_failed_row():
    """What the candidate raises is the reason, in one line with the case."""

    def fn(xp, z):
        raise RuntimeError("no kernel\nfor you")

    value, (slope,) = run(LSE, fn, [LOGITS])
    assert value.reason == slope.reason == "raised RuntimeError: no kernel (made)"
    assert codes(value) == codes(slope) == {"KLA200"}


def test_numpy_has_no_gradient_and_says_so():
    """A gradient row of NumPy is skipped with the reason; the value is measured."""
    value, (slope,) = run(LSE, right_lse, [LOGITS], target=NUMPY)
    assert value.verdict == "pass"
    assert (slope.verdict, slope.reason) == ("skipped", "numpy has no automatic differentiation")


def test_no_case_is_no_pass():
    """Without a case there is no verdict but vacuous."""
    value, (slope,) = run(LSE, right_lse, [])
    assert (value.verdict, slope.verdict) == ("vacuous", "vacuous")
    assert value.reason == "no case was measured"


def test_a_gradient_at_a_kink_alone_is_vacuous():
    """Where no derivative exists there is nothing to compare: vacuous, and the value passes."""
    kink = Problem("kink", ("z",), ("z",), ("z",), lambda ops, z: ops.max(z))
    value, (slope,) = run(kink, lambda xp, z: xp.max(z), [case(z=[2.0, 2.0])])
    assert value.verdict == "pass"
    assert slope.verdict == "vacuous"
    assert slope.reason == "no gradient is defined at these inputs"
    _, (slope,) = run(kink, lambda xp, z: xp.max(z), [case(z=[2.0, 1.0])])
    assert slope.verdict == "pass"


def test_a_value_where_there_is_none_is_no_pass():
    """At NaN there is no right result: whatever comes out, nothing was judged."""
    value, _ = run(FIGURES, lambda xp, z: xp.exp(z), [case(z=[np.nan])], target=NUMPY)
    assert value.undefined == 1
    assert value.verdict == "vacuous"


def test_the_worst_of_many_cases_is_kept():
    """One bad case among nine good ones decides, and is the witness."""
    good = [case(logits=[0.1 * k, 1.0, -1.0]) for k in range(1, 10)]
    bad = Case("the bad one", {"logits": np.array([0.0, 20.0, 0.0])}, "", 3)

    def fn(xp, z):
        y = xp.logsumexp(z)
        return xp.where(y > 19, y * xp.constant(1.05, z), y)

    value, (slope,) = run(LSE, fn, [*good[:4], bad, *good[4:]])
    assert value.verdict == "fail"
    assert value.worst.case is bad
    assert value.max_rel == pytest.approx(0.05, rel=1e-4)
    assert "at the bad one: " in value.findings["KLA001"].message
    assert slope.worst.case is bad


def test_a_line_has_the_right_result_in_hex():
    """A finding ends with what came out and what should have, both as numbers of the format."""
    value, _ = run(LSE, lambda xp, z: 2 * xp.logsumexp(z), [LOGITS])
    with mpmath.workdps(40):
        truth = mpmath.log(sum(mpmath.exp(x) for x in LOGITS.inputs["logits"].tolist()))
        want = round_to_format(Fraction(int(truth * 2**100), 2**100), FP32)
    message = value.findings["KLA001"].message
    assert message.startswith(
        "logsumexp candidate float32 torch-eager: relative error 1 > 0.01 at made: logits=("
    )
    got, shown = message.removesuffix(" [KLA001]").split(": got ")[1].split(", want ")
    assert float.fromhex(shown) == want
    assert float.fromhex(got) == 2 * want


def test_modes_are_compared_by_their_bits():
    """A second mode that differs in one case of two is a note with the count and the greatest gap."""
    seen = {}
    at = [case(a=[1.5], b=[3.0]), case(a=[0.1], b=[0.3])]
    run(PRODUCT, lambda xp, a, b: a * b, at, seen=seen)
    fake = Target(BACKENDS["torch"], "compile", "cpu")
    plain = BACKENDS["torch"].array_evaluator

    def off(xp, a, b):
        return xp.where(a < 1, a * b * xp.constant(1.001, a), a * b)

    try:
        BACKENDS["torch"].array_evaluator = lambda fn, mode, device, wrt=(): plain(fn, "eager", device, wrt)
        value, _ = run(PRODUCT, off, at, target=fake, seen=seen)
    finally:
        del BACKENDS["torch"].array_evaluator
    assert value.verdict == "pass"
    message = value.findings["KLA106"].message
    assert "differs from torch-eager in 1 of 2 cases, by up to 0.001 relative" in message
    assert value.findings["KLA106"].level == "note"
