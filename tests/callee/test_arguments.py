"""Matching inputs to parameters."""

from __future__ import annotations

import inspect
import math

import pytest
from callee.helpers import their

from kl_audit.callee import Loaded, bind, wants, wants_d, wants_pair
from kl_audit.callee.literals import parse_constants, parse_value
from kl_audit.callee.roles import classify, find_role
from kl_audit.errors import UsageError

PAIR = ("policy", "reference")


def loaded(fn) -> Loaded:
    try:
        signature = inspect.signature(fn)
    except ValueError:
        signature = None
    return Loaded(fn, f"m:{fn.__name__}", None, None, signature)


def says(fn, inputs, args=None, constants=()) -> str:
    with pytest.raises(UsageError) as caught:
        bind(loaded(fn), inputs, args, list(constants))
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-2", -2), ("1e-4", 1e-4), ("0.5", 0.5), ("true", True), ("False", False), ("none", None),
        ("None", None), ("null", None), ("low_var_kl", "low_var_kl"), ("'none'", "none"), ('"a b"', "a b"),
        ("[1, 2.5]", [1, 2.5]), ("(1,)", (1,)), ("inf", math.inf), ("-INF", -math.inf), ("k3+", "k3+"),
        ("", ""), ("__import__('os')", "__import__('os')"),
    ],
)  # fmt: skip
def test_values_are_literals_or_text(text, value):
    """Numbers, constants, quoted strings and lists are read; anything else is a string."""
    got = parse_value(text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("text", ["[1, 2", "'a", "{1: x}"])
def test_an_open_bracket_is_an_error(text):
    """What begins like a literal and is none is refused, not taken as a string."""
    with pytest.raises(UsageError, match=r"^cannot read the value .*: not a Python literal\.$"):
        parse_value(text)


def test_constants_are_name_and_value():
    """The form is name=value, each name once."""
    assert parse_constants(["a=1", "b=x=y"]) == {"a": 1, "b": "x=y"}
    with pytest.raises(UsageError, match=r"^--with 'a' is not of the form name=value\.$"):
        parse_constants(["a"])
    with pytest.raises(UsageError, match=r"^--with gives 'a' twice\.$"):
        parse_constants(["a=1", "a=2"])


@pytest.mark.parametrize(
    ("role", "names"),
    {
        "policy": "log_probs logprob logprobs per_token_logps new_logps policy_logprobs logprobs_policy "
        "log_prob current_logprobs actor_log_probs policy new logp Log_Probs pi",
        "reference": "ref_logprob ref_per_token_logps log_probs_base ref_log_probs ref_logps base_logprobs "
        "logprobs_reference reference ref pi_ref target_log_prob reference_log_probs p_ref log_ref",
        "old": "old_logprob old_per_token_logps log_probs_old old_log_probs behaviour_logps old "
        "sampling_per_token_logps generation_logprobs rollout_log_probs inference_logprobs",
        "d": "d x log_ratio logratio log_ratios logr logprob_diff log_prob_diff ref_logprobs_diff delta",
        "mask": "mask action_mask loss_mask response_mask attention_mask completion_mask full_attention_mask",
        "logits": "logits policy_logits student_logits s_logits",
        "teacher": "teacher_logits t_logits ref_logits teacher",
        "student": "student_logits student s_logits",
        "index": "labels index target_ids input_ids completion_ids",
        "weights": "weights",
    }.items(),
)
def test_names_of_public_trainers_are_known(role, names):
    """Each name has the role that its trainer gives it."""
    assert [n for n in names.split() if role not in classify(n)] == []


SETTINGS = (
    "kl_penalty beta log logger log_interval logprob_threshold use_mask mask_value mask_truncated p q r "
    "importance_ratio ratio advantages temperature clip model_config log_importance_ratio"
)


@pytest.mark.parametrize("name", SETTINGS.split())
def test_other_names_say_nothing(name):
    """A setting is not taken for an input because it has a word in common."""
    assert classify(name) == frozenset()


@pytest.mark.parametrize(
    ("word", "inputs", "role"),
    [
        ("ref", PAIR, "reference"), ("p_ref", PAIR, "reference"), ("new", PAIR, "policy"),
        ("logprob", PAIR, "policy"), ("x", ("d",), "d"), ("logratio", ("d",), "d"),
        ("log_ratio", ("d",), "d"),
        ("behaviour", ("policy", "old", "reference"), "old"), ("mask", PAIR, "mask"), ("d", PAIR, None),
        ("old", PAIR, None), ("values", ("values",), "values"), ("student", PAIR, "policy"),
    ],
)  # fmt: skip
def test_roles_have_aliases(word, inputs, role):
    """An input is known by its own name and by the usual ones."""
    assert find_role(word, inputs) == role


def test_a_trainers_function_is_bound_by_its_names():
    """verl's function needs only its constant."""
    b = bind(their("torch", "kl_penalty"), PAIR, None, ["kl_penalty=low_var_kl"])
    assert b.slots == {"policy": "logprob", "reference": "ref_logprob"}
    assert b.arrange((1, 2), None) == ([1, 2, "low_var_kl"], {})
    assert str(b) == "policy=logprob, reference=ref_logprob; kl_penalty='low_var_kl'"


def test_defaults_that_lie_between_are_left_alone():
    """What follows a parameter that is left to its default is passed by name."""
    b = bind(their("torch", "compute_approx_kl"), PAIR, None, ["kl_estimator=k3"])
    assert b.arrange((1, 2), None) == ([1, 2], {"kl_estimator": "k3"})
    b = bind(their("jax", "compute_kl_divergence"), PAIR, None, ["clamp_value=none"])
    assert b.arrange((1, 2), None) == ([1, 2], {"clamp_value": None})


def test_an_optional_input_is_found():
    """The third input of a weighted quantity goes to the parameter named old."""
    b = bind(their("torch", "compute_approx_kl"), ("policy", "old", "reference"))
    assert b.arrange(("p", "o", "r"), None) == (["p", "r", "o"], {})


def test_the_order_of_inputs_is_the_quantitys():
    """Parameters in another order get the right inputs."""

    def f(ref_logps, *, logps):
        pass

    assert bind(loaded(f), PAIR).arrange(("p", "r"), None) == (["r"], {"logps": "p"})


def test_masks_get_ones():
    """A parameter named as a mask, required or not, is filled; a switch is not."""

    def f(logps, ref_logps, loss_mask, attention_mask=None, pad_mask: bool = False):
        pass

    b = bind(loaded(f), PAIR)
    assert b.masks == ("loss_mask", "attention_mask")
    assert b.arrange((1, 2), "ones") == ([1, 2, "ones", "ones"], {})
    assert bind(loaded(f), PAIR, None, ["attention_mask=none"]).masks == ("loss_mask",)


def test_a_mask_that_is_an_input_is_passed():
    """Where the quantity has a mask it is used in place of ones."""

    def f(values, mask):
        pass

    b = bind(loaded(f), ("values", "mask"))
    assert b.arrange(("v", "m"), None) == (["v", "m"], {})


def test_arguments_can_be_given():
    """--args takes names, aliases, positions, and roles in order; the rest is inferred."""

    def f(a, b, valid=None):
        pass

    assert bind(loaded(f), PAIR, "policy=b,ref=a").slots == {"policy": "b", "reference": "a"}
    assert bind(loaded(f), PAIR, "policy=1, reference=0").slots == {"policy": "b", "reference": "a"}
    assert bind(loaded(f), PAIR, "ref,policy").slots == {"policy": "b", "reference": "a"}
    assert bind(loaded(f), PAIR, "policy,reference,mask=valid").masks == ("valid",)
    b = bind(their("torch", "kl_penalty"), PAIR, "policy=ref_logprob,reference=logprob", ["kl_penalty=kl"])
    assert b.slots == {"policy": "ref_logprob", "reference": "logprob"}


def test_the_only_parameter_is_the_only_input():
    """A function of one unexplained parameter takes the one input there is."""

    def f(z, scale=1.0):
        pass

    b = bind(loaded(f), ("d",))
    assert b.slots == {"d": "z"}
    assert b.notes[0] == "'z' is taken to be d, being the only required parameter"
    assert "opposite difference" in b.notes[1]


def test_without_a_signature_inputs_go_by_position():
    """An unreadable signature leaves the order, and says so."""
    f = Loaded(max, "m:f", None, None, None)
    b = bind(f, PAIR, None, ["eps=1"])
    assert b.arrange((1, 2), None) == ([1, 2], {"eps": 1})
    order = "its signature cannot be read: the inputs are passed by position, in the order {}"
    assert b.notes == (order.format("policy, reference"),)
    assert bind(f, PAIR, "ref,policy,mask").arrange((1, 2), 3) == ([2, 1, 3], {})
    assert bind(f, PAIR, "policy,reference=ref").arrange((1, 2), None) == ([1], {"ref": 2})
    with pytest.raises(
        UsageError, match=r"^f\(\.\.\.\): the positions in --args must be 0, 1, \.\.\. without gaps"
    ):
        bind(f, PAIR, "policy=0,reference=2")
    with pytest.raises(UsageError, match=r"cannot be read, and --args leaves out reference\.$"):
        bind(f, PAIR, "policy")


def test_what_a_function_wants_is_seen():
    """d or the pair, by the parameters or by --args."""
    assert wants_pair(their("torch", "kl_penalty"))
    assert wants_d(their("torch", "k3"))
    assert not wants_pair(their("torch", "k3"))
    assert wants(loaded(lambda a, b: a)) is None
    assert wants(loaded(lambda z, eps=1: z)) == "d"
    assert wants(loaded(lambda a, b: a), "policy=a,ref=b") == "pair"
    assert wants(loaded(lambda a, b: a), "d") == "d"
    assert wants(loaded(lambda log_p, log_q: 0)) is None
    assert wants(Loaded(max, "m:f", None, None, None)) is None


def pair(logprob, ref_logprob, kind):
    pass


def unknown(a, b):
    pass


def ratio(log_ratio):
    pass


def weighted(logps, old_logps, ref_logps):
    pass


def pq(log_p, log_q):
    pass


def twice(logps, log_probs, ref_logps):
    pass


SHOWN = "pair(logprob, ref_logprob, kind)"


@pytest.mark.parametrize(
    ("fn", "inputs", "args", "constants", "text"),
    [
        (pair, PAIR, None, [], f"{SHOWN}: policy is 'logprob', reference is 'ref_logprob'; "
         "nothing is known for kind; give a value with --with kind=VALUE."),
        (pair, ("d",), None, [], f"{SHOWN} takes a pair of log-probabilities (policy 'logprob', reference "
         "'ref_logprob'), not a log-ratio d: audit a quantity of the pair, such as k3-pair."),
        (ratio, PAIR, None, [], "ratio(log_ratio) takes a log-ratio ('log_ratio'), not a pair of "
         "log-probabilities: audit a quantity of d, such as k3."),
        (unknown, PAIR, None, [], "unknown(a, b): no parameter is known to be policy, reference; "
         "say which with --args policy=NAME,reference=NAME."),
        (unknown, PAIR, "policy=b", [],
         "unknown(a, b): policy is 'b'; no parameter is known to be reference; "
         "say which with --args policy=b,reference=NAME."),
        (pq, PAIR, None, [], "pq(log_p, log_q): no parameter is known to be policy, reference; "
         "say which with --args policy=NAME,reference=NAME."),
        (twice, PAIR, None, [], "twice(logps, log_probs, ref_logps): policy may be logps or log_probs; "
         "say which with --args policy=logps."),
        (weighted, PAIR, None, [], "weighted(logps, old_logps, ref_logps): policy is 'logps', reference is "
         "'ref_logps'; nothing is known for old_logps; give a value with --with old_logps=VALUE, or audit a "
         "quantity with the input old, such as weighted-k3-pair."),
        (pair, PAIR, None, ["kinds=1"], f"--with: {SHOWN} has no parameter 'kinds'; did you mean kind?"),
        (pair, PAIR, None, ["z=1"],
         f"--with: {SHOWN} has no parameter 'z'; it has logprob, ref_logprob, kind."),
        (pair, PAIR, "policy=prob", [], f"--args: {SHOWN} has no parameter 'prob'; did you mean logprob?"),
        (pair, PAIR, "policy=7", [], f"--args: {SHOWN} has no position 7; it has 3, from 0."),
        (pair, PAIR, "old=kind", [],
         "--args: 'old' is no input of the quantity, which takes policy, reference."),
        (pair, PAIR, "policy=kind,policy=logprob", [], "--args gives policy twice."),
        (pair, PAIR, "policy=kind,ref=kind", [], "--args gives 'kind' two inputs."),
        (pair, PAIR, "policy=", [], "--args 'policy=' is not of the form role=parameter."),
        (pair, PAIR, "policy=kind", ["kind=1"],
         "'kind' is given both an input by --args and a value by --with."),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_do(fn, inputs, args, constants, text):
    """Each refusal is one line: what was found, what lacks, what to write."""
    assert says(fn, inputs, args, constants) == text


def test_keyword_functions_take_any_constant():
    """With ``**kwargs`` no name is wrong."""

    def f(d, **kwargs):
        pass

    assert bind(loaded(f), ("d",), None, ["eps=1"]).arrange((2,), None) == ([2], {"eps": 1})
