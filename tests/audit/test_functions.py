"""The reader's own functions: found, called, looked at, and told about."""

from __future__ import annotations

import importlib
import itertools

import mpmath
import numpy as np
import pytest
from audit.helpers import audit, findings, one, threshold

SOURCE = """
import time
import numpy as np, torch, jax.numpy as jnp

def torch_k3(d):
    return torch.exp(d) - d - 1

def jax_k3(d):
    return jnp.exp(d) - d - 1

def numpy_k3(d):
    return np.exp(d) - d - np.ones_like(d)

def any_k2(d):
    return d / 2 * d

def prints(d):
    print("hello from the function")
    return torch.exp(d) - d - 1

def clamps_in_place(d):
    with torch.no_grad():
        d.clamp_(-1, 1)
    return torch.exp(d) - d - 1

def clamps_far_in_place(d):
    np.clip(d, -20, 20, out=d)
    return np.exp(d) - d - np.ones_like(d)

def random(d):
    return torch.exp(d) - d - 1 + 1e-3 * torch.rand_like(d)

def slow(d):
    time.sleep(0.02)
    return np.exp(d) - d - np.ones_like(d)

def loss(d):
    return (torch.exp(d) - d - 1).mean()

def numpy_loss(d):
    return (d / 2 * d).mean()

def upcasts(d):
    d = d.float()
    return torch.exp(d) - d - 1

def centred(d):
    return torch.exp(d - d.mean())

def normalised(d):
    return torch.softmax(d, -1)

def detached_reference(policy, reference):
    d = reference.detach() - policy
    return torch.expm1(d) - d

def pair(logprob, ref_logprob, kl_penalty="kl"):
    d = ref_logprob - logprob
    return {"kl": -d, "low_var_kl": torch.exp(d) - d - 1}[kl_penalty]

def with_mask(log_probs, ref_log_probs, mask):
    d = ref_log_probs - log_probs
    return (torch.exp(d) - d - 1) * mask

def two_dimensional(d):
    batch, length = d.shape
    return torch.exp(d) - d - 1

def both(d):
    return {"kl": torch.exp(d) - d - 1, "twice": 2 * d}

class Penalty(torch.nn.Module):
    def forward(self, d):
        return torch.exp(d) - d - 1

def naive_logsumexp(logits):
    return torch.log(torch.exp(logits).sum(-1))

def masked_mean(values, mask):
    return (values * mask).sum() / mask.sum()

def reversed_k3(d):
    return torch.exp(-d) + d - 1
"""
counter = itertools.count()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Write the functions to a file of their own, and return its path."""
    file = tmp_path_factory.mktemp("mine") / f"audited_functions_{next(counter)}.py"
    file.write_text(SOURCE)
    return str(file)


GRID = {"grid": "0.1:1:21", "explain": False, "modes": "eager"}


@pytest.mark.parametrize(
    ("name", "backends"),
    [("torch_k3", ["torch"]), ("jax_k3", ["jax"]), ("numpy_k3", ["numpy"]),
     ("any_k2", ["numpy", "torch", "jax"])],
)  # fmt: skip
def test_a_function_runs_in_the_framework_that_it_uses(path, name, backends):
    """The framework is found from what the code names; a function that names none runs in all."""
    rows = audit(f"{path}:{name}", quantity="k2" if name == "any_k2" else "k3", **GRID)
    assert [r.row.target.backend.name for r in rows if r.row.block.output == "value"] == backends
    for row in rows:
        if row.row.target.backend.name == "numpy" and row.row.block.output == "gradient":
            assert row.judgement.verdict == "skipped"
            assert row.judgement.reason == "numpy has no automatic differentiation"
        else:
            assert row.judgement.verdict == "pass"


def test_figures_of_a_function_are_those_of_its_own_arithmetic(path):
    """The greatest relative error is that of the function called here, by mpmath."""
    row = one(audit(f"{path}:numpy_k3", quantity="k3", only="value", **GRID))
    d = np.linspace(0.1, 1, 21).astype(np.float32)
    got = np.exp(d) - d - np.float32(1)
    with mpmath.workdps(50):
        truth = [mpmath.exp(x) - x - 1 for x in map(mpmath.mpf, d.tolist())]
        errors = [abs(y - t) / t for y, t in zip(got.tolist(), truth, strict=True)]
        assert row.judgement.core_rel == pytest.approx(float(max(errors)), rel=1e-9)


def test_a_function_by_module_name(path, monkeypatch, tmp_path):
    """package.module:function is found in the current folder."""
    (tmp_path / "my_audited_module.py").write_text("def k2(d):\n    return d / 2 * d\n")
    monkeypatch.chdir(tmp_path)
    rows = audit("my_audited_module:k2", quantity="k2", backends="numpy", only="value", **GRID)
    assert one(rows).judgement.verdict == "pass"


def test_a_module_with_forward_is_a_function(path):
    """A torch.nn.Module that is made without arguments is called, and that is told."""
    rows = audit(f"{path}:Penalty", quantity="k3", only="value", **GRID)
    assert one(rows).judgement.verdict == "pass"
    assert "Penalty() was made without arguments" in rows[0].facts


def test_printing_is_a_fact_and_not_output(path, capfd):
    """What a function prints is told once."""
    row = one(audit(f"{path}:prints", quantity="k3", only="value", **GRID))
    assert row.judgement.verdict == "pass"
    assert "prints: hello from the function" in row.facts


def test_a_function_that_changes_its_input_is_given_copies(path):
    """clamp_ to [-1, 1] changes ordinary inputs: a fact, and the results are the clamped objective's."""
    row = one(audit(f"{path}:clamps_in_place", quantity="k3", only="value", grid="-3:3:25", explain=False,
                    modes="eager"))  # fmt: skip
    assert "changes its inputs: it is given copies" in row.facts
    assert str(row.row.formulation.clamp) == "log-ratio clipped to [-1, 1]"
    assert row.judgement.verdict == "pass"
    assert row.judgement.core_rel < 1e-5


def test_a_stock_formulation_beside_a_mutating_function_is_unharmed(path):
    """The inputs that others get are not those that a function has changed."""
    rows = audit(f"{path}:clamps_far_in_place", quantity="k3", only="value", grid="15:40:51", explain=False,
                 clamp="none", against="naive")  # fmt: skip
    assert one(rows).judgement.verdict == "fail"
    assert one(rows, mine=False).judgement.verdict == "pass"


def test_a_change_of_far_inputs_is_told_too(path):
    """np.clip(d, -20, 20, out=d) changes its input, if only beyond 20."""
    row = one(audit(f"{path}:clamps_far_in_place", quantity="k3", only="value", **GRID))
    assert "changes its inputs: it is given copies" in row.facts


def test_a_random_function_is_a_skipped_row(path):
    """Two calls that differ cannot be judged: every row is skipped with that reason."""
    rows = audit(f"{path}:random", quantity="k3", **GRID)
    assert len(rows) == 2
    for row in rows:
        assert row.judgement.verdict == "skipped"
        assert row.judgement.reason == "two calls on the same input differ (random numbers, or a counter)"


def test_a_slow_function_is_told(path, monkeypatch):
    """A call that takes longer than the limit (a tenth of a second; here a hundredth) is a fact."""
    probe = importlib.import_module("kl_audit.callee.probe")  # the package has a function of that name

    assert probe.SLOW_CALL == 0.1
    monkeypatch.setattr(probe, "SLOW_CALL", 0.01)
    row = one(audit(f"{path}:slow", quantity="k3", only="value", clamp="none", **GRID))
    assert any(f.startswith("takes 0.02") and " s a call" in f for f in row.facts)
    assert row.judgement.verdict == "pass"


def test_a_loss_is_called_for_one_element_at_a_time(path):
    """A function that returns a mean is called with single elements: values and gradients of each."""
    rows = audit(f"{path}:loss", quantity="k3", **GRID)
    plain = audit(f"{path}:torch_k3", quantity="k3", **GRID)
    assert "returns one number: called for one element at a time" in rows[0].facts
    assert rows[0].row.tally.points == 21
    for mine, other in zip(rows, plain, strict=True):
        assert mine.judgement.verdict == "pass"
        assert mine.judgement.core_rel == pytest.approx(other.judgement.core_rel, rel=0.5)


def test_a_loss_on_the_default_grid_has_fewer_points(path):
    """Called element by element, a default grid has a few points in each decade."""
    row = one(audit(f"{path}:numpy_loss", quantity="k2", only="value", backends="numpy", explain=False))
    assert 100 < row.row.tally.points < 1000
    assert row.judgement.verdict == "pass"


def test_a_function_that_subtracts_the_mean_is_not_judged(path):
    """exp(d - mean(d)) mixes its elements: skipped with that reason, as softmax is."""
    row = audit(f"{path}:centred", quantity="ratio", only="value", **GRID)[0]
    assert row.judgement.verdict == "skipped"
    assert "depends on the others" in row.judgement.reason


def test_a_function_that_mixes_its_elements_is_a_skipped_row(path):
    """softmax over the elements is no function of one log-ratio."""
    row = audit(f"{path}:normalised", quantity="ratio", only="value", **GRID)[0]
    assert row.judgement.verdict == "skipped"
    assert "the result of an element depends on the others" in row.judgement.reason


def test_an_upcasting_function_is_held_to_the_dtype_it_returns(path):
    """bfloat16 in, float32 out: ulps are of float32, and the report says so."""
    from kl_audit.audit.request import Request, prepare
    from kl_audit.report.audited import report_of

    rows = audit(f"{path}:upcasts", quantity="k3", dtypes="bf16", only="value", **GRID)
    assert one(rows).row.result.name == "float32"
    job = prepare(Request(f"{path}:upcasts", quantity="k3", dtypes=("bf16",)))
    (result,) = report_of(list(rows), job, ["kl-audit"], False).results
    assert (result.dtype, result.result_dtype) == ("bfloat16", "float32")
    worst = one(rows).judgement.worst[0]
    x = worst[1].inputs[0]
    with mpmath.workdps(50):
        truth = mpmath.exp(x) - x - 1
        ulp = mpmath.mpf(2) ** (int(mpmath.floor(mpmath.log(truth, 2))) - 23)
        assert worst[0] == pytest.approx(float(abs(worst[1].got - truth) / ulp), rel=1e-9)


def test_a_detached_reference_is_a_skipped_row(path):
    """The gradient by a reference that is detached is 0 by design: skipped, with the reason."""
    rows = audit(f"{path}:detached_reference", quantity="k3", only="gradient", **GRID)
    by_policy, by_reference = (one(rows, "gradient", wrt) for wrt in (0, 1))
    assert by_policy.judgement.verdict == "pass"
    assert by_reference.judgement.verdict == "skipped"
    assert by_reference.judgement.reason == (
        "the gradient with respect to reference is 0 everywhere: reference is detached"
    )


def test_a_gradient_by_each_input_is_a_row(path):
    """A reference that is not detached has a gradient of its own, of the other sign."""
    rows = audit(f"{path}:pair", quantity="k3", only="gradient", with_="kl_penalty=low_var_kl", **GRID)
    assert [r.row.block.what for r in rows] == ["k3-pair gradient by policy", "k3-pair gradient by reference"]
    assert [r.judgement.verdict for r in rows] == ["pass", "pass"]


def test_constants_choose_the_branch(path):
    """--with kl_penalty=low_var_kl is k3, the default is k1."""
    row = one(audit(f"{path}:pair", quantity="k3", only="value", with_="kl_penalty=low_var_kl", **GRID))
    assert row.judgement.verdict == "pass"
    assert one(audit(f"{path}:pair", quantity="k1", only="value", **GRID)).judgement.verdict == "pass"
    assert one(audit(f"{path}:pair", quantity="k3", only="value", **GRID)).judgement.verdict == "fail"


def test_arguments_by_name_and_by_position(path):
    """--args policy=logprob,ref=ref_logprob says the same as the names do; the wrong way round fails k1."""
    for args, verdict in (("policy=logprob,ref=ref_logprob", "pass"), ("policy=0,reference=1", "pass"),
                          ("policy=ref_logprob,ref=logprob", "fail")):  # fmt: skip
        row = one(audit(f"{path}:pair", quantity="k1", args=args, only="value", **GRID))
        assert row.judgement.verdict == verdict, args


def test_a_mask_is_given_ones(path):
    """A parameter that is a mask keeps every token."""
    row = one(audit(f"{path}:with_mask", quantity="k3", only="value", **GRID))
    assert row.judgement.verdict == "pass"


def test_a_function_of_two_dimensions_is_offered_a_batch(path):
    """A function that unpacks (batch, length) is called with arrays of two dimensions."""
    row = one(audit(f"{path}:two_dimensional", quantity="k3", only="value", **GRID))
    assert row.judgement.verdict == "pass"


@pytest.mark.parametrize(("key", "verdict"), [("kl", "pass"), ("twice", "fail")])
def test_one_part_of_what_is_returned(path, key, verdict):
    """--output names the entry of a dict."""
    row = one(audit(f"{path}:both", quantity="k3", output=key, only="value", **GRID))
    assert row.judgement.verdict == verdict


def test_a_function_against_a_formula(path):
    """--truth says what is right as a formula: the reversed k3 is exp(-d) + d - 1, and not k3."""
    right = audit(f"{path}:reversed_k3", truth="exp(-d) + d - 1", **GRID)
    assert [r.judgement.verdict for r in right] == ["pass", "pass"]
    wrong = audit(f"{path}:reversed_k3", quantity="k3", **GRID)
    assert [r.judgement.verdict for r in wrong] == ["fail", "fail"]


def test_against_shows_stock_formulations_beside_it(path):
    """--against adds rows that are not the reader's, measured on the same points."""
    rows = audit(f"{path}:torch_k3", quantity="k3", only="value", against="naive expm1", **GRID)
    assert [(r.row.formulation.name, r.mine) for r in rows] == [
        ("torch_k3", True), ("naive", False), ("expm1", False),
    ]  # fmt: skip
    mine, naive, expm1 = rows
    assert mine.row.tally.points == naive.row.tally.points == 21
    assert mine.judgement.max_ulp == naive.judgement.max_ulp > expm1.judgement.max_ulp


def test_thresholds_of_a_function(path):
    """Thresholds of a function are those of the same formula."""
    rows = audit(f"{path}:torch_k3", quantity="k3", only="value", modes="eager", grid="0.1:1:9")
    formula = audit(expr="exp(d) - d - 1", quantity="k3", only="value", backends="torch", modes="eager",
                    grid="0.1:1:9")  # fmt: skip
    assert threshold(rows[0], "accurate-1%") == threshold(formula[0], "accurate-1%")


def test_a_vector_function_is_tried_on_cases(path):
    """log(sum(exp)) overflows on huge logits and has a NaN gradient behind: found on generated cases."""
    rows = audit(f"{path}:naive_logsumexp", quantity="logsumexp", sizes=(2, 8), modes="eager")
    value, slope = one(rows), one(rows, "gradient")
    assert {"KLA104", "KLA202"} <= set(findings(value, "error"))
    assert "KLA401" in findings(slope, "error")
    assert value.remedy.formulation is not None


def test_masked_slots_of_a_vector_function(path):
    """values * mask keeps the NaN of a masked slot: KLA108, with what the slot held."""
    value = one(audit(f"{path}:masked_mean", quantity="masked-mean", sizes=(4,), modes="eager", explain=False,
                      backends="torch"))  # fmt: skip
    message = findings(value, "error")["KLA108"].message
    assert "NaN because of what masked slots hold" in message
    assert ": got nan, want " in message
