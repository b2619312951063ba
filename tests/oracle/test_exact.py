"""The certified oracle against mpmath at a precision far beyond what it uses."""

import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from kl_audit.errors import OracleError
from kl_audit.formats import BF16, FP16, FP32, FP64
from kl_audit.oracle.exact import IntervalOps, Undecided, Undefined, certify, decimal
from kl_audit.quantities import QUANTITIES, Clamp, objective

ALL = [FP64, FP32, FP16, BF16]
each = pytest.mark.parametrize("fmt", ALL, ids=lambda f: f.short)

#: k3 of the smallest float64 loses 2,200 bits; 3000 leave 800.
PRECISION = 3000


def mp_fraction(value):
    """Return an mpf as the Fraction that it is."""
    sign, man, exp, _ = value._mpf_
    assert man or value == 0
    out = Fraction(int(man)) * Fraction(2) ** int(exp)
    return -out if sign else out


def k3(d):
    return mpmath.exp(d) - d - 1


def expm1(d):
    return mpmath.exp(d) - 1


#: name, output -> the truth, written again in mpmath
SCALAR_TRUTHS = {
    ("k3", "value"): k3,
    ("k3", "gradient"): expm1,
    ("k1", "value"): lambda d: -d,
    ("k1", "gradient"): lambda d: mpmath.mpf(-1),
    ("k2", "value"): lambda d: d * d / 2,
    ("k2", "gradient"): lambda d: d,
    ("ratio", "value"): mpmath.exp,
    ("exp", "value"): mpmath.exp,
    ("exp", "gradient"): mpmath.exp,
    ("expm1", "value"): expm1,
    ("expm1", "gradient"): mpmath.exp,
    ("weighted-k3", "value"): k3,
    ("weighted-k3", "gradient"): lambda d: d,
}
PAIR_TRUTHS = {
    ("k3-pair", "value"): lambda p, r: k3(r - p),
    ("k3-pair", "gradient"): lambda p, r: -expm1(r - p),
    ("k2-pair", "value"): lambda p, r: (r - p) ** 2 / 2,
    ("k2-pair", "gradient"): lambda p, r: p - r,
    ("k1-pair", "value"): lambda p, r: p - r,
    ("k1-pair", "gradient"): lambda p, r: mpmath.mpf(1),
    ("ratio-pair", "value"): lambda p, r: mpmath.exp(r - p),
    ("ratio-pair", "gradient"): lambda p, r: -mpmath.exp(r - p),
}
TRIPLE_TRUTHS = {
    ("weighted-k3-pair", "value"): lambda p, o, r: mpmath.exp(p - o) * k3(r - p),
    ("weighted-k3-pair", "gradient"): lambda p, o, r: -(r - p) * mpmath.exp(p - o),
}


def truth(fn, inputs):
    with mpmath.workprec(PRECISION):
        return mp_fraction(+fn(*(mpmath.mpf(x) for x in inputs)))


def close(got, want, fmt):
    """Compare within the promised 2**-(p+40) relative."""
    if want == 0:
        return got == 0
    return abs(got - want) < abs(want) / Fraction(2) ** (fmt.precision + 40)


def cast(fmt, values):
    return [float(v) for v in np.array(values, dtype=np.float64).astype(fmt.dtype)]


def axis(fmt, n=14):
    """Return log-ratios of both signs from the smallest number to the overflow of exp."""
    overflow = math.log(fmt.largest)
    rng = random.Random(7)
    logs = [rng.uniform(math.log(fmt.smallest), math.log(overflow)) for _ in range(n)]
    inner = [rng.uniform(-40, 3) for _ in range(n)]
    magnitudes = [math.exp(v) for v in logs + [v for v in inner if math.exp(v) > fmt.smallest]]
    magnitudes += [overflow, overflow * (1 + 4 * fmt.u), overflow * (1 - 4 * fmt.u), 1.0]
    magnitudes += [fmt.smallest, 3 * fmt.smallest, fmt.smallest_normal, math.log(2)]
    values = cast(fmt, magnitudes)
    return [0.0, *values, *(-v for v in values)]


@each
@pytest.mark.parametrize(("name", "output"), SCALAR_TRUTHS)
def test_certified_value_agrees_with_mpmath(fmt, name, output):
    """From the smallest subnormal to overflow, certify agrees with mpmath to 2**-(p+40)."""
    reference = QUANTITIES[name].side(output).reference
    fn = SCALAR_TRUTHS[name, output]
    for x in axis(fmt, 6):
        assert close(certify(reference, (x,), fmt), truth(fn, (x,)), fmt), x.hex()


def rows(fmt, columns, n=15):
    """Return log-probabilities: far apart, close together, equal, and of tiny size."""
    rng = random.Random(columns)
    out = []
    for _ in range(n):
        base = -math.exp(rng.uniform(-8, 2))
        out.append([base] * columns)
        out.append([base * (1 + rng.uniform(-8, 8) * fmt.u) for _ in range(columns)])
        out.append([-math.exp(rng.uniform(-8, 2)) for _ in range(columns)])
    out.append([-fmt.smallest * (i + 1) for i in range(columns)])
    out.append([-fmt.smallest if i else -1.0 for i in range(columns)])
    return [cast(fmt, row) for row in out]


@each
@pytest.mark.parametrize(("name", "output"), [*PAIR_TRUTHS, *TRIPLE_TRUTHS])
def test_certified_value_of_several_inputs_agrees_with_mpmath(fmt, name, output):
    """The quantities of log-probabilities take their exact difference, as mpmath does."""
    fn = (PAIR_TRUTHS | TRIPLE_TRUTHS)[name, output]
    quantity = QUANTITIES[name]
    for row in rows(fmt, len(quantity.inputs), 5):
        got = certify(quantity.side(output).reference, tuple(row), fmt)
        assert close(got, truth(fn, row), fmt), row


@each
def test_clamped_objective_agrees_with_mpmath(fmt):
    """A clamped objective has the clamped value, and the gradient 0 where a clamp is active."""
    low, high, top = -10.0, 8.0, 5.0
    clamped = objective(QUANTITIES["k3"], Clamp((low, high), (0.0, top)))
    for x in axis(fmt, 6):
        inside = min(max(x, low), high)
        result = truth(k3, (inside,))
        value = certify(clamped.value.reference, (x,), fmt)
        assert close(value, min(result, Fraction(top)), fmt), x
        if x == 0:  # at the clamp's edge: the result is exactly its lower limit
            continue
        free = low < x < high and result < top
        slope = certify(clamped.gradient.reference, (x,), fmt)
        assert close(slope, truth(expm1, (x,)) if free else Fraction(0), fmt), x


def test_weighted_clamped_gradient_agrees_with_mpmath():
    """The weighted gradient of a clamped k3 is clamp'(k3) - clamp(k3), also where nothing pulls."""
    clamped = objective(QUANTITIES["weighted-k3"], Clamp(None, (-10.0, 10.0)))
    for x in (1e-30, -1e-6, 2.0, -9.5):
        got = certify(clamped.gradient.reference, (x,), FP64)
        assert close(got, Fraction(x), FP64)
    for x in (3.0, -12.0, 80.0):
        assert certify(clamped.gradient.reference, (x,), FP64) == -10


@pytest.mark.parametrize("x", [-4.0, 3.0])
def test_gradient_on_the_edge_of_an_input_clamp_is_undefined(x):
    """Exactly on the edge of a clamped log-ratio the gradient is undefined, beside it is not."""
    clamped = objective(QUANTITIES["k3"], Clamp((-4.0, 3.0)))
    with pytest.raises(Undefined):
        certify(clamped.gradient.reference, (x,), FP64)
    inner, outer = math.nextafter(x, 0), math.nextafter(x, 9 * x)
    assert close(certify(clamped.gradient.reference, (inner,), FP64), truth(expm1, (inner,)), FP64)
    assert certify(clamped.gradient.reference, (outer,), FP64) == 0
    assert close(certify(clamped.value.reference, (x,), FP64), truth(k3, (x,)), FP64)


def test_gradient_near_the_edge_of_an_output_clamp_is_undefined():
    """Within one bfloat16 step of the limit of a clamped result the gradient is undefined."""
    clamped = objective(QUANTITIES["k3"], Clamp(None, (0.0, 10.0)))
    with mpmath.workprec(200):
        edge = float(mpmath.findroot(lambda d: k3(d) - 10, 2.6))
    with pytest.raises(Undefined):
        certify(clamped.gradient.reference, (edge,), FP64)
    with pytest.raises(Undefined):
        certify(clamped.gradient.reference, (edge * 1.001,), FP64)
    assert certify(clamped.gradient.reference, (edge * 1.02,), FP64) == 0
    below = edge * 0.98
    assert close(certify(clamped.gradient.reference, (below,), FP64), truth(expm1, (below,)), FP64)


def test_exact_values_are_returned_exactly():
    """Where the value is a number, it is returned without any error."""
    k3_side = QUANTITIES["k3"].value
    assert certify(k3_side.reference, (0.0,), FP64) == 0
    assert certify(QUANTITIES["exp"].value.reference, (-0.0,), FP32) == 1
    assert certify(QUANTITIES["expm1"].value.reference, (0.0,), BF16) == 0
    x = float.fromhex("0x1.fffffffffffffp-500")
    assert certify(QUANTITIES["k1"].value.reference, (x,), FP64) == -Fraction(x)
    assert certify(QUANTITIES["k1"].gradient.reference, (x,), FP64) == -1
    assert certify(QUANTITIES["k3-pair"].value.reference, (-0.3, -0.3), FP64) == 0


@pytest.mark.parametrize("x", [1e5, 1e38, 1e308, 1.7976931348623157e308])
def test_beyond_every_format_is_saturated(x):
    """Far overflow and underflow are certified as beyond every format, with the right sign."""
    big = certify(QUANTITIES["k3"].value.reference, (x,), FP64)
    assert big > Fraction(2) ** 5000
    tiny = certify(QUANTITIES["exp"].value.reference, (-x,), FP64)
    assert 0 < tiny < Fraction(1, 2**5000)
    assert close(certify(QUANTITIES["k3"].value.reference, (-x,), FP64), Fraction(x) - 1, FP64)


@pytest.mark.parametrize(
    "reference",
    [
        lambda ops, d: ops.exp(d) - ops.exp(d),
        lambda ops, d: (ops.exp(d) - d - 1) - (ops.exp(d) - 1 - d),
        lambda ops, d: ops.exp(d) * ops.exp(-d) - 1,
    ],
    ids=["exp - exp", "k3 - k3", "exp(d) exp(-d) - 1"],
)
def test_what_cannot_be_certified_is_refused(reference):
    """A zero that no interval proves to be one is refused, with the input in the message."""
    with pytest.raises(OracleError, match=r"0x1\.8000000000000p-1"):
        certify(reference, (0.75,), FP32)


def test_a_branch_that_is_never_decided_is_refused():
    """A branch on a value that equals its limit without being exact is refused, not guessed."""

    def reference(ops, d):
        return d if ops.inside(ops.exp(d) - ops.exp(d), 0.0, 1.0) else -d

    with pytest.raises(OracleError):
        certify(reference, (0.75,), FP32)


def around(k, n=120):
    """Return float32 numbers of both signs from 2**k on."""
    x = np.float32(2.0**k)
    step = np.spacing(x)
    up = [float(x + np.float32(i) * step) for i in range(0, 331 * n, 331)]
    return [*up, *(-v for v in up)]


@pytest.mark.parametrize(("k", "least", "most"), [(-26, 0.22, 0.26), (-30, 3.5, 4.1), (-40, 3700, 4200)])
def test_float64_expm1_is_no_truth_for_float32(k, least, most):
    """float64 expm1(x) - x is wrong by 0.24, 3.8 and 3900 u of float32 where certify is right."""
    reference = QUANTITIES["k3"].value.reference
    worst = Fraction(0)
    for x in around(k):
        want = truth(k3, (x,))
        naive = Fraction(float(np.expm1(x)) - x)
        worst = max(worst, abs(naive - want) / want * 2**24)
        assert close(certify(reference, (x,), FP32), want, FP32)
    assert least < worst < most


@pytest.mark.parametrize(
    ("bits", "k"), [(100, -100), (mpmath.libmp.dps_to_prec(50), -300)], ids=["2^-100", "2^-300"]
)
def test_fixed_precision_mpmath_is_no_truth(bits, k):
    """mpmath's expm1(x) - x at 100 bits, and at 50 digits, is all wrong where certify is right."""
    x = 2.0**k
    want = truth(k3, (x,))
    with mpmath.workprec(bits):
        trap = mp_fraction(mpmath.expm1(mpmath.mpf(x)) - mpmath.mpf(x))
    assert abs(trap - want) > want * Fraction(99, 100)
    assert close(certify(QUANTITIES["k3"].value.reference, (x,), FP64), want, FP64)


def test_mpmath_intervals_do_not_contain_the_truth_and_certify_does():
    """mpmath's own interval of exp(x) - x - 1 is the point 0 at 96 bits; certify sees through."""
    x = float.fromhex("-0x1.fff4bcp-62")
    context = mpmath.ctx_iv.MPIntervalContext()
    context.prec = 96
    trap = context.exp(context.mpf(x)) - context.mpf(x) - 1
    assert trap.a == 0
    assert trap.b == 0
    want = truth(k3, (x,))
    assert want > 0
    for fmt in (FP32, BF16, FP64):
        assert close(certify(QUANTITIES["k3"].value.reference, (x,), fmt), want, fmt)


@pytest.mark.parametrize("precision", [64, 96, 137, 256])
def test_interval_exp_contains_the_truth(precision):
    """The interval of exp holds the true value at each precision, where mpmath's own may not."""
    ops, rng = IntervalOps(precision), random.Random(precision)
    for _ in range(120):
        x = rng.choice([-1, 1]) * math.exp(rng.uniform(-150, 6))
        value = ops.exp(ops.number(x))
        with mpmath.workprec(PRECISION):
            want = mpmath.exp(mpmath.mpf(x))
            low, high = (mpmath.mp.make_mpf(end) for end in value._mpi_)
            assert low <= want <= high
            assert high - low <= 16 * abs(want) * mpmath.mpf(2) ** -precision


def test_interval_clip_acts_on_both_ends():
    """Clipping an interval clips its ends, and leaves what lies inside."""
    ops = IntervalOps(80)
    clip = ops.clip(ops._ctx.mpf([-3, 5]), -1.0, 2.0)
    assert [mp_fraction(mpmath.mp.make_mpf(e)) for e in clip._mpi_] == [-1, 2]
    kept = ops.clip(ops._ctx.mpf([0.25, 0.5]), -1.0, 2.0)
    assert [mp_fraction(mpmath.mp.make_mpf(e)) for e in kept._mpi_] == [
        Fraction(1, 4), Fraction(1, 2)]  # fmt: skip


def test_interval_inside_decides_or_asks_for_more():
    """Membership is decided only by a whole interval: else more bits, or nothing at an edge."""
    ops = IntervalOps(80)
    interval = ops._ctx.mpf
    assert ops.inside(interval([0.25, 0.5]), 0.0, 1.0) is True
    assert ops.inside(interval([2, 3]), 0.0, 1.0) is False
    assert ops.inside(interval([-3, -2]), 0.0, 1.0) is False
    with pytest.raises(Undecided):
        ops.inside(interval([0.5, 1.5]), 0.0, 1.0)
    with pytest.raises(Undecided):
        ops.inside(interval([1.0, 1.5]), 0.0, 1.0)
    for edge in (0.0, 1.0):
        with pytest.raises(Undefined):
            ops.inside(interval(edge), 0.0, 1.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(1, 3), "0." + "3" * 30),
        (Fraction(-1, 2**20), "-9.53674316406250000000000000000e-7"),
        (Fraction(0), "0.0"),
        (Fraction(2) ** -1074, "4.94065645841246544176568792868e-324"),
    ],
)
def test_decimal_gives_thirty_correct_digits(value, text):
    """A certified value is shown with thirty correctly rounded significant digits."""
    shown = decimal(value)
    assert Fraction(shown) == Fraction(text)
    assert abs(Fraction(shown) - value) <= abs(value) * Fraction(1, 10**29)
