"""A user's function as a candidate."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from callee.helpers import bound, probed

from kl_audit.backends import BACKENDS, CandidateError
from kl_audit.callee import ShapePlan, bind, candidate, load
from kl_audit.callee.outputs import describe, take
from kl_audit.errors import UsageError
from kl_audit.formats import BF16, FP16, FP32, FP64

POINTS = FP32.cast([-1.5, -0.25, 0.0, 0.5, 2.0])


def k3(d: float) -> float:
    """Return exp(d) - 1 - d to 50 digits, rounded."""
    with mpmath.workdps(50):
        return float(mpmath.expm1(mpmath.mpf(d)) - mpmath.mpf(d))


def evaluate(kind, name, columns=None, mode="eager", output=None, constants=(), at="value"):
    """Evaluate a user's function by its back end, in the shape that the probe found."""
    loaded, binding, found = probed(kind, name, output, constants)
    if columns is None:
        columns = (POINTS,) if len(binding.inputs) == 1 else (np.zeros_like(POINTS), POINTS)
    fn = candidate(loaded, binding, found.output, found.plan)
    return BACKENDS[kind].evaluator(fn, mode, "cpu", FP32, at)(*columns)


PLAIN = {
    "torch": "k3 loss_and_metrics as_dict as_dataclass as_namedtuple needs_two_dimensions needs_bool_mask "
    "needs_float_mask masked_mean_loss per_sequence upcasts mutates KLLoss Estimator.of K3 instance",
    "jax": "compute_kl_divergence k3",
    "numpy": "k3 mean_k3 in_place",
}
NAMES = [(kind, name, []) for kind, names in PLAIN.items() for name in names.split()] + [
    ("torch", "kl_penalty", ["kl_penalty=k3"]),
    ("torch", "compute_approx_kl", ["kl_estimator=k3"]),
    ("jax", "k3_of_kind", ["kind=k3"]),
]


@pytest.mark.parametrize(("kind", "name", "constants"), NAMES, ids=[f"{k}-{n}" for k, n, _ in NAMES])
def test_every_kind_of_function_gives_its_values(kind, name, constants):
    """Whatever its parameters, shapes and results, a function of k3 gives k3."""
    got = evaluate(kind, name, constants=constants)
    truth = np.array([k3(float(x)) for x in POINTS])
    np.testing.assert_allclose(got.astype(np.float64), truth, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "name", "mode"),
    [("torch", "needs_two_dimensions", "compile"), ("torch", "kl_penalty", "compile"),
     ("torch", "as_dict", "compile"), ("torch", "KLLoss", "compile"), ("torch", "mutates", "compile"),
     ("jax", "compute_kl_divergence", "jit"), ("jax", "k3_of_kind", "jit")],
)  # fmt: skip
def test_candidates_are_traced_by_compilers(kind, name, mode):
    """Nothing in a candidate keeps torch.compile or jax.jit from tracing it."""
    constants = {"kl_penalty": ["kl_penalty=k3"], "k3_of_kind": ["kind=k3"]}.get(name, [])
    got = evaluate(kind, name, mode=mode, constants=constants)
    truth = np.array([k3(float(x)) for x in POINTS])
    np.testing.assert_allclose(got.astype(np.float64), truth, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["needs_two_dimensions", "masked_mean_loss", "per_sequence", "kl_penalty", "KLLoss"]
)
def test_gradients_flow_through_shapes_and_elements(name):
    """The gradient of k3 with respect to the policy's log-probability is -expm1(d)."""
    constants = ["kl_penalty=k3"] if name == "kl_penalty" else []
    got = evaluate("torch", name, constants=constants, at="gradient")
    truth = np.array([-float(mpmath.expm1(float(x))) for x in POINTS])
    np.testing.assert_allclose(got.astype(np.float64), truth, rtol=2e-6, atol=1e-7)


def test_copies_let_gradients_through():
    """A function that changes its input in place can be differentiated on a copy."""
    got = evaluate("torch", "mutates", at="gradient")
    np.testing.assert_allclose(got, np.expm1(POINTS.astype(np.float64)), rtol=2e-6, atol=1e-7)


def test_the_caller_keeps_its_inputs():
    """With copies, the arrays given are the same bits afterwards."""
    loaded, binding, found = probed("numpy", "in_place")
    assert found.plan.copies
    xp, (x,) = BACKENDS["numpy"].arrays((POINTS,))
    candidate(loaded, binding, None, found.plan)(xp, x)
    assert x.tobytes() == POINTS.tobytes()


def test_an_output_can_be_chosen():
    """--output is an index, a key, an attribute, several with dots, or a row of an array."""
    truth = np.array([k3(float(x)) for x in POINTS])
    for name, output in [("loss_and_metrics", "0"), ("loss_and_metrics", "1.kl"), ("as_dict", "kl"),
                         ("as_dataclass", "kl"), ("as_namedtuple", "kl"), ("as_namedtuple", "-1"),
                         ("four_estimates", "2"), ("two_arrays", "1")]:  # fmt: skip
        got = evaluate("torch", name, output=output)
        np.testing.assert_allclose(got.astype(np.float64), truth, rtol=2e-6, atol=1e-6, err_msg=name)


def test_a_reduction_can_be_chosen():
    """A mean in a dictionary is called for one element at a time."""
    _, _, found = probed("torch", "as_dict", "loss")
    assert found.plan.pointwise
    truth = np.array([k3(float(x)) for x in POINTS])
    np.testing.assert_allclose(evaluate("torch", "as_dict", output="loss"), truth, rtol=2e-6, atol=1e-6)


def test_an_output_that_is_not_there_shows_what_is():
    """The refusal lists names, shapes and dtypes."""
    with pytest.raises(UsageError) as caught:
        probed("torch", "as_dict", "k3")
    assert str(caught.value) == (
        "--output 'k3' is not there: it returned dict (loss: torch float32 (), kl: torch float32 (64,))."
    )
    with pytest.raises(UsageError, match=r"--output '2' is not there: it returned tuple \(0: torch float32"):
        probed("torch", "two_arrays", "2")


def test_two_possible_outputs_must_be_told_apart():
    """Without --output there has to be exactly one."""
    with pytest.raises(UsageError) as caught:
        probed("torch", "two_arrays")
    assert str(caught.value) == (
        "it returned tuple (0: torch float32 (64,), 1: torch float32 (64,)): say which with --output 0."
    )


def test_long_results_are_described_in_brief():
    """No more than eight entries are listed."""
    assert describe(list(range(10))).endswith("7: int, ...)")
    assert describe(None) == "None"
    assert describe(1.5) == "Python float"


def test_keys_with_dots_are_found():
    """A dictionary's own key comes before a path."""
    assert take({"actor.kl": 1, "actor": {"kl": 2}}, "actor.kl") == 1
    assert take({"actor": {"kl": 2}}, "actor.kl") == 2
    assert take([3, 4], "-1") == 4


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("torch", "nothing", "returned None, expected an array of the framework it was given"),
        ("torch", "number", "returned Python float, expected an array of the framework it was given"),
        ("torch", "integers", "returned dtype int64, expected float64, float32, float16 or bfloat16"),
        ("torch", "booleans", "returned dtype bool, expected float64, float32, float16 or bfloat16"),
        (
            "torch",
            "to_float8",
            "returned dtype float8_e4m3fn, expected float64, float32, float16 or bfloat16",
        ),
        ("torch", "too_short", "returned torch float32 (5,) for 64 elements"),
        (
            "torch",
            "to_numpy",
            "returned numpy float32 (64,), expected an array of the framework it was given",
        ),
        ("numpy", "wide", "returned dtype complex64, expected float64, float32, float16 or bfloat16"),
        ("torch", "exits", "raised SystemExit: 3 (at torch_losses.py:LINE)"),
        ("torch", "raises", "raised ValueError: no such thing (at torch_losses.py:LINE)"),
    ],
)
def test_a_result_of_the_wrong_kind_is_named(kind, name, text):
    """What a function returned or raised is told in one line."""
    with pytest.raises(CandidateError) as caught:
        probed(kind, name)
    loaded, _ = bound(kind, name)
    assert str(caught.value) == text.replace("LINE", str(loaded.line + 1))


def test_an_error_is_placed_at_the_innermost_line_of_the_file():
    """Where a helper of the same file calls into torch, the line of that call is told."""
    loaded, binding = bound("torch", "raises_below")
    xp, arrays = BACKENDS["torch"].arrays((POINTS,))
    with pytest.raises(CandidateError) as caught:
        candidate(loaded, binding, None, ShapePlan())(xp, *arrays)
    text = str(caught.value)
    assert text.startswith("raised RuntimeError: stack expects each tensor to be equal size")
    assert text.endswith(f"(at torch_losses.py:{loaded.line + 1})")


def test_arrays_can_pass_as_they_are():
    """Without a shape, arrays of any shapes go in and the result comes out unshaped."""
    loaded = load("torch:logsumexp")
    b = bind(loaded, ("logits",), None, ["dim=-1"])
    fn = candidate(loaded, b, None, ShapePlan(shape=None))
    x = FP32.cast([[0.0, 0.0], [1.0, 1.0]])
    got, _ = BACKENDS["torch"].array_evaluator(fn, "eager", "cpu")(x)
    log2 = float(mpmath.log(2))
    np.testing.assert_allclose(got, [log2, 1 + log2], rtol=1e-6)


def test_a_function_without_a_signature_is_called_by_position():
    """torch's own functions have no signature to read."""
    loaded = load("torch:expm1")
    assert loaded.signature is None
    fn = candidate(loaded, bind(loaded, ("d",)), None, ShapePlan())
    got = BACKENDS["torch"].evaluator(fn, "eager", "cpu", FP32)(FP32.cast([0.0, 1.0]))
    assert Fraction(float(got[0])) == 0
    assert got[1] == pytest.approx(float(mpmath.expm1(1)), rel=1e-6)


class _Stand:
    """Operations that keep account of what is asked of them, on NumPy arrays."""

    def __init__(self):
        self.asked = []

    def is_array(self, x):
        return isinstance(x, np.ndarray)

    def reshape(self, x, shape):
        self.asked.append(("reshape", tuple(shape)))
        return np.reshape(x, shape)

    def full(self, shape, value, ref):
        self.asked.append(("full", tuple(shape), value))
        return np.full(shape, value, ref.dtype)

    def as_bool(self, x):
        self.asked.append(("as_bool",))
        return x != 0

    def stack(self, arrays):
        return np.stack(arrays)


def masked(d, mask):
    """Return d, and where the mask is False 0; keep what it was given."""
    masked.given = (d.shape, mask.shape, mask.dtype)
    return np.where(mask, d, 0)


@pytest.mark.parametrize(
    ("shape", "given"), [((-1,), (5,)), ((1, -1), (1, 5)), ((-1, 1), (5, 1)), ((1, 1, -1), (1, 1, 5))]
)
def test_a_plan_is_what_the_function_sees(shape, given):
    """Inputs and mask come in the shape of the plan, and the result goes back to (n,)."""
    import inspect

    from kl_audit.callee import Loaded

    loaded = Loaded(masked, "m:masked", None, None, inspect.signature(masked))
    xp = _Stand()
    got = candidate(loaded, bind(loaded, ("d",)), None, ShapePlan(shape))(xp, POINTS)
    assert got.tolist() == POINTS.tolist()
    assert masked.given == (given, given, np.dtype(bool))
    assert ("full", given, 1.0) in xp.asked
    assert (("reshape", given) in xp.asked) is (len(given) > 1)
    candidate(loaded, bind(loaded, ("d",)), None, ShapePlan(shape, "float"))(xp, POINTS)
    assert masked.given[2] == np.float32


def test_the_format_returned_is_known_for_every_input():
    """A function that upcasts returns float32 for the narrow formats; another keeps them."""
    from kl_audit.callee import result_formats

    loaded, binding, found = probed("torch", "upcasts")
    answers = result_formats(loaded, binding, found, BACKENDS["torch"], [FP64, FP32, FP16, BF16])
    assert answers == dict.fromkeys(["float64", "float32", "float16", "bfloat16"], FP32)
    loaded, binding, found = probed("jax", "k3")
    answers = result_formats(loaded, binding, found, BACKENDS["jax"], [FP64, FP32, FP16, BF16])
    assert answers == {f.name: f for f in (FP64, FP32, FP16, BF16)}
