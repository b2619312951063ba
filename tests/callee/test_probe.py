"""What is found out about a function before it is audited."""

from __future__ import annotations

import contextlib
import sys
import warnings

import numpy as np
import pytest
from callee.helpers import bound, make, probed

from kl_audit.backends import BACKENDS, Unavailable
from kl_audit.callee import detect_backends, ordinary, quiet
from kl_audit.callee.facts import projected
from kl_audit.errors import UsageError
from kl_audit.formats import BF16, FP32

ALL = list(BACKENDS.values())


def text(found, flag):
    fact = found.fact(flag)
    return fact.text if fact else None


def test_a_plain_function_has_only_plain_facts():
    """Nothing is held against a function that does nothing but compute."""
    for kind in ("torch", "jax", "numpy"):
        _, _, found = probed(kind, "k3")
        assert [(f.flag, f.text) for f in found.facts] == [
            ("accepts", f"accepts {kind} arrays"),
            ("shape", "called on arrays of shape [n]"),
            ("format", "returns float32 for float32"),
        ]
        assert found.reason is None
        assert (found.backend, found.output, found.returns_scalar) == (kind, None, False)


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("k3", "[n]"),
        ("needs_two_dimensions", "[1, n]"),
        ("per_sequence", "[n, 1]"),
        ("masked_mean_loss", "[n]"),
    ],
)
def test_the_first_shape_with_a_value_for_each_element_is_taken(name, plan):
    """Sequences of one token are offered before a function is called for each element."""
    _, _, found = probed("torch", name)
    assert str(found.plan) == plan
    assert found.plan.pointwise is (name == "masked_mean_loss")


def test_a_reduction_is_called_for_one_element_at_a_time():
    """One number for all elements is a fact, and sets the plan."""
    _, _, found = probed("torch", "masked_mean_loss")
    assert found.returns_scalar
    assert text(found, "scalar") == "returns one number: called for one element at a time"
    _, _, found = probed("numpy", "mean_k3")
    assert found.returns_scalar


def test_masks_are_tried_as_booleans_and_as_numbers():
    """A function that refuses the one gets the other."""
    assert probed("torch", "needs_bool_mask")[2].plan.mask == "bool"
    assert probed("torch", "needs_float_mask")[2].plan.mask == "float"


def test_an_upcast_shows():
    """The format of the result is named, beside that of the inputs."""
    _, _, found = probed("torch", "upcasts", fmt=BF16)
    assert found.result_format == "float32"
    assert text(found, "format") == "returns float32 for bfloat16"


def test_printing_and_warning_are_noted_not_shown(capsys):
    """The first line printed and the first warning are kept; the terminal stays clean."""
    _, _, found = probed("torch", "prints")
    assert text(found, "prints") == "prints: loss computed"
    assert text(found, "warns") == "warns: UserWarning: this loss is old"
    assert found.reason is None
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("kind", "name"), [("torch", "mutates"), ("numpy", "in_place")])
def test_changing_the_input_is_noticed(kind, name):
    """A function that writes into its input is given copies."""
    _, _, found = probed(kind, name)
    assert text(found, "mutates") == "changes its inputs: it is given copies"
    assert found.plan.copies
    assert found.reason is None


@pytest.mark.parametrize("name", ["random", "numpy_random", "Dropped", "counts"])
def test_what_differs_from_call_to_call_cannot_be_judged(name):
    """Random numbers, dropout and counters block a row, with the reason."""
    _, _, found = probed("torch", name)
    assert found.reason == "two calls on the same input differ (random numbers, or a counter)"
    assert found.has("random")


def test_a_first_call_that_differs_is_state():
    """A function that settles after its first call is told from a random one."""
    loaded, _ = bound("torch", "warms_up")
    loaded.fn.__globals__["_calls"]["warm"] = 0
    _, _, found = probed("torch", "warms_up")
    assert text(found, "state") == "the first call differs from later ones (it keeps state)"
    assert not found.has("random")
    assert not probed("torch", "warms_up")[2].has("state")


def test_elements_that_depend_on_others_are_noticed():
    """A mean within the function makes a row meaningless."""
    _, _, found = probed("torch", "centred")
    assert found.reason == "the result of an element depends on the others (a mean or a scan within)"


def test_a_slow_function_is_timed():
    """Seconds a call, and for the whole audit where its size is known."""
    _, _, found = probed("torch", "sleeps", points=1 << 20)
    assert 0.12 <= found.seconds < 1
    assert found.projected(1 << 20) == pytest.approx(16 * found.seconds)
    assert (
        text(found, "slow")
        == f"takes {found.seconds:.2g} s a call, {16 * found.seconds:.2g} s for 1048576 points"
    )
    assert not probed("torch", "k3")[2].has("slow")


def test_time_is_projected_by_calls():
    """Whole arrays cost a call each; a reduction costs one for each element."""
    assert projected(0.5, 64, False, 100, 64) == 1.0
    assert projected(0.5, 8, True, 80, 64) == 5.0


@pytest.mark.parametrize(("kind", "name"), [("torch", "detached"), ("jax", "stopped")])
def test_a_detached_result_is_noticed(kind, name):
    """A gradient that is 0 everywhere is a fact, not a reason to stop."""
    _, _, found = probed(kind, name)
    assert text(found, "detached") == "the gradient with respect to d is 0 everywhere (detached)"
    assert found.reason is None


def test_numbers_that_are_not_finite_are_noticed():
    """The first is told, with the input that gave it."""
    _, _, found = probed("torch", "log_of_negative")
    d = float(ordinary(("d",), FP32)[0][0])
    assert d < 0
    assert text(found, "nonfinite") == f"returns nan at d={d:g}"


def test_ordinary_inputs_are_log_probabilities():
    """Log-probabilities are negative, their difference has both signs and is never 0."""
    policy, reference, old = ordinary(("policy", "reference", "old"), FP32)
    assert (policy < 0).all()
    assert (reference < 0).all()
    assert (old < 0).all()
    d = reference - policy
    assert (d > 0).any()
    assert (d < 0).any()
    assert (np.abs(d) > 0.04).all()


@pytest.mark.parametrize(
    ("kind", "name", "accepted"),
    [("torch", "k3", ["torch"]), ("jax", "compute_kl_divergence", ["jax"]), ("torch", "KLLoss", ["torch"])],
)
def test_back_ends_are_detected(kind, name, accepted):
    """A function of one framework refuses the others' arrays, each with a reason in one line."""
    loaded, binding = bound(kind, name)
    found = detect_backends(loaded, binding, ALL, make)
    assert [d.backend for d in found] == [b.name for b in ALL]
    assert [d.backend for d in found if d.accepted] == accepted
    for d in found:
        assert (d.reason is None) is d.accepted
        assert d.accepted or "\n" not in d.reason


def test_the_reason_of_a_refusal_names_the_line():
    """A torch function on JAX arrays raises TypeError, in its own file."""
    loaded, binding = bound("torch", "k3")
    (found,) = detect_backends(loaded, binding, [BACKENDS["jax"]], make)
    assert found.reason.startswith("raised TypeError: expm1(): argument 'input'")
    assert found.reason.endswith(f"(at torch_losses.py:{loaded.line + 1})")


def test_a_jax_function_on_numpy_arrays_leaves_the_framework():
    """JAX accepts NumPy arrays but returns its own: no NumPy function."""
    loaded, binding = bound("jax", "k3")
    (found,) = detect_backends(loaded, binding, [BACKENDS["numpy"]], make)
    assert found.reason == "returned jax float32 (64,), expected an array of the framework it was given"


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_numpy_function_is_not_measured_as_another(backend):
    """NumPy's functions accept arrays of others, and turn them into their own."""
    _, _, found = probed("numpy", "k3", backend=backend)
    assert found.reason == f"turns {backend} arrays into NumPy's: NumPy would be measured, not {backend}"


def test_a_reason_is_the_same_in_every_run():
    """Addresses of objects are left out."""
    loaded, binding = bound("jax", "k3")
    (found,) = detect_backends(loaded, binding, [BACKENDS["torch"]])
    assert found.reason.startswith("raised TypeError: Error interpreting argument to <function k3> as an")


def test_a_gradient_that_fails_is_told():
    """A value that cannot be differentiated keeps its row, with the reason."""
    _, _, found = probed("torch", "K3WithoutBackward")
    assert text(found, "detached").startswith("cannot be differentiated: ")
    assert "no way back" in text(found, "detached")
    assert found.reason is None


def test_probing_draws_arrays_from_the_back_end_by_default():
    """Without a maker, Backend.arrays is used."""
    loaded, binding = bound("torch", "k3")
    assert [d.accepted for d in detect_backends(loaded, binding, ALL)] == [False, True, False]


def test_a_framework_that_is_not_there_is_a_reason():
    """What the maker of arrays says becomes the reason."""

    def none(backend, columns):
        raise Unavailable("torch is not installed")

    loaded, binding = bound("torch", "k3")
    (found,) = detect_backends(loaded, binding, [BACKENDS["torch"]], none)
    assert (found.accepted, found.reason) == (False, "torch is not installed")


def test_a_choice_to_be_made_stops_the_detection():
    """Which output is meant is the user's to say; no back end is to blame."""
    loaded, binding = bound("torch", "two_arrays")
    with pytest.raises(UsageError, match="say which with --output 0"):
        detect_backends(loaded, binding, [BACKENDS["torch"]], make)


def test_two_shapes_two_reasons():
    """Where shapes fail for different causes, both are told."""
    with pytest.raises(Exception, match=r"for arrays of shape \[n\]; raised .* for \[1, n\]"):
        probed("torch", "three_dimensional_bug")


def test_quiet_keeps_output_and_warnings(capsys):
    """What runs inside leaves nothing on the terminal, even if it raises."""
    with contextlib.suppress(ValueError), quiet() as heard:
        print("\n  out  ")
        print("err", file=sys.stderr)
        warnings.warn("old\nvery", UserWarning, stacklevel=1)
        raise ValueError
    assert heard.printed == "out"
    assert heard.warnings == ["UserWarning: old"]
    assert capsys.readouterr() == ("", "")
