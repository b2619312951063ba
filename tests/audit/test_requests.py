"""What can be asked for, and the one line for what cannot."""

from __future__ import annotations

import pytest
from audit.helpers import NAIVE

from kl_audit.audit.log_ratio import Task
from kl_audit.audit.request import Request, prepare
from kl_audit.audit.vectors import VectorTask
from kl_audit.errors import UsageError
from kl_audit.formulations import formulations_for
from kl_audit.formulations.vectors import vector_formulations_of
from kl_audit.quantities import QUANTITIES
from kl_audit.quantities.vectors import VECTORS

FUNCTIONS = """
import torch

def k3(d):
    return torch.exp(d) - d - 1

def pair(logprob, ref_logprob):
    d = ref_logprob - logprob
    return torch.exp(d) - d - 1

def refuses(d):
    raise ValueError("no kernel")

def compares(d):
    return d > 0

def two(d):
    return d, d + 1

def lse(logits):
    return torch.logsumexp(logits, -1)

def weigh(policy, old, adv):
    return torch.exp(policy - old) * adv
"""
FORM = "write NAME=1,0.5,-inf, with NAME:bf16=..., NAME:int=... or NAME:bool=... for another type."
KNOWN = ", ".join([*QUANTITIES, *VECTORS])
STOCK = ", ".join(f.name for f in formulations_for(QUANTITIES["k3"]))
STOCK_LOGSUMEXP = ", ".join(f.name for f in vector_formulations_of("logsumexp"))
NUMERIC = "float64, float32, float16 or bfloat16"


@pytest.fixture
def module(tmp_path):
    """Write the functions above to a file, and return its path."""
    path = tmp_path / "mine.py"
    path.write_text(FUNCTIONS)
    return str(path)


def error(target=None, **request):
    """Return the text of the UsageError that a request gives."""
    with pytest.raises(UsageError) as caught:
        prepare(Request(target, **request))
    return str(caught.value)


ONE = "give one thing to audit: package.module:function, or a formula with --expr 'exp(d) - d - 1'."


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({}, ONE),
        ({"target": "m:f", "expr": NAIVE}, ONE),
        ({"quantity": "k3", "truth": NAIVE},
         "--quantity and --truth both say what is right; give one of them."),
        ({"only": "hessian"}, "unknown --only 'hessian'. Known: value, gradient."),
        ({"max_rel": -1.0}, "--max-rel -1: expected a number, 0 or more."),
        ({"max_ulp": float("nan")}, "--max-ulp nan: expected a number, 0 or more."),
        ({"sizes": (0,)}, "--size 0: expected 1 to 1000000 entries."),
        ({"sizes": (8, 1_000_001)}, "--size 1000001: expected 1 to 1000000 entries."),
        ({"at": ("d=1",), "grid": "0.1"}, "--at gives the inputs, and --grid would too; give one of them."),
        ({"at": ("d=1",), "per_decade": 5},
         "--at gives the inputs, and --grid would too; give one of them."),
        ({"quantity": "k9"}, f"unknown quantity 'k9'. Known: {KNOWN}."),
        ({"quantity": "k3", "output": "kl"},
         "--output selects a part of what a function returns; a formula has one result."),
        ({"quantity": "k3", "clamp": "10"},
         "--clamp '10': expected auto, none, in:LO,HI or out:LO,HI with LO < HI."),
        ({"quantity": "k3", "clamp": "in:1,1"},
         "--clamp 'in:1,1': expected auto, none, in:LO,HI or out:LO,HI with LO < HI."),
        ({"quantity": "k3", "clamp": "out:nan,1"},
         "--clamp 'out:nan,1': expected auto, none, in:LO,HI or out:LO,HI with LO < HI."),
        ({"quantity": "k3", "against": ("nave",)},
         f"unknown formulation of k3 'nave'. Known: {STOCK}."),
        ({"quantity": "k3", "at": ("x=1",)}, "--at: 'x' is no input; k3 takes d."),
        ({"quantity": "k3", "at": ("d:bf16=1",)}, "--at d:bf16: all inputs of k3 share --dtype."),
        ({"at": ("x=1",)}, "--at: 'x' is no input; expression takes d."),
        ({"expr": "a*b"}, "the formula has 2 inputs, and no grid is known for them: give values with "
                          "--at a=1 --at b=1."),
        ({"expr": "sum(x)"},
         "the formula is one of vectors, and no grid is known for them: give --at x=1,0.5."),
        ({"expr": "sum(x)", "at": ("y=1",)}, "--at: 'y' is no input; the formula takes x."),
        ({"expr": "sum(x*m)", "at": ("x=1",)}, "--at: 'm' is missing; the formula takes x, m."),
        ({"expr": "sum(x)", "at": ("x=1",), "against": ("naive",)},
         "--against needs a --quantity: it names a stock formulation of one."),
        ({"expr": "logsumexp(logits)", "quantity": "logsumexp", "against": ("nave",)},
         f"unknown formulation of logsumexp 'nave'. Known: {STOCK_LOGSUMEXP}."),
        ({"expr": "sum(d)", "quantity": "k3", "backends": ("torch",)},
         "expr cannot be called. torch: returned shape (), expected (64,)."),
        ({"expr": "d > 0", "quantity": "k3", "backends": ("torch",)},
         f"expr cannot be called. torch: returned dtype bool, expected {NUMERIC}."),
        ({"device": "abacus"}, "unknown device 'abacus'. Known: cpu, cuda, rocm, tpu, xpu, mps."),
        ({"backends": ("torch",), "modes": ("jit",)},
         "no such mode in these backends: jit. They have torch: eager, compile."),
        # --at
        ({"at": ("d",)}, f"--at 'd': no value; {FORM}"),
        ({"at": ("d=",)}, f"--at 'd=': no value; {FORM}"),
        ({"at": ("=1",)}, f"--at '=1': no value; {FORM}"),
        ({"at": ("d=1", "d=2")}, "--at gives 'd' twice."),
        ({"at": ("d=1", "d:int=2")}, "--at gives 'd' twice."),
        ({"at": ("d=1,ten",)}, f"--at 'd=1,ten': 'ten' is not a number; {FORM}"),
        ({"at": ("d=1*x",)}, f"--at 'd=1*x': '1*x' is not a number; {FORM}"),
        ({"at": ("d=0x1p4000",)}, f"--at 'd=0x1p4000': '0x1p4000' is not a number; {FORM}"),
        ({"at": ("d=1*0",)}, "--at 'd=1*0': '1*0' asks for 0 values, expected 1 to 1000000."),
        ({"at": ("d=1*2000000",)},
         "--at 'd=1*2000000': '1*2000000' asks for 2000000 values, expected 1 to 1000000."),
        ({"at": ("d:int=1.5",)}, "--at 'd:int=1.5': '1.5' is not an integer."),
        ({"at": ("d:bool=2",)}, "--at 'd:bool=2': '2' is neither 1 nor 0."),
        ({"at": ("d:fp8=2",)}, "unknown dtype 'fp8'. Known: fp64, fp32, fp16, bf16 (also float64, float32, "
                               "float16, bfloat16)."),
        # names of a formula
        ({"quantity": "k3", "args": "foo=d"},
         "--args: 'foo' is no input of the quantity, which takes d."),
        ({"expr": "exp(a) - b", "quantity": "k3"},
         "expression: 'a' is none of the inputs (d); map it with --args d=a, or give it a value with "
         "--with a=VALUE."),
        ({"quantity": "k3", "with_": ("beta=1",)},
         "expression: there is no 'beta' in it; its names are d."),
        ({"expr": "b*d", "quantity": "k3", "with_": ("b=low",)},
         "--with b=low: expected a number in an expression."),
        ({"expr": "b*d", "quantity": "k3", "with_": ("b=true",)},
         "--with b=True: expected a number in an expression."),
        ({"quantity": "k3", "with_": ("b",)}, "--with 'b' is not of the form name=value."),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_exact_line(request_, text):
    """Each wrong request has one line: what was wrong, what was expected, what to do."""
    request_ = {"expr": None if request_ == {} else NAIVE, "target": None} | request_
    found = error(**request_)
    assert found == text
    assert "\n" not in found


@pytest.mark.parametrize(
    ("name", "request_", "text"),
    [
        ("refuses", {"quantity": "k3"},
         "refuses cannot be called. torch: raised ValueError: no kernel (at mine.py:12)."),
        ("compares", {"quantity": "k3"},
         f"compares cannot be called. torch: returned dtype bool, expected {NUMERIC}."),
        ("two", {"quantity": "k3"},
         "it returned tuple (0: torch float32 (64,), 1: torch float32 (64,)): say which with --output 0."),
        ("two", {"quantity": "k3", "output": "2"},
         "--output '2' is not there: it returned tuple (0: torch float32 (64,), 1: torch float32 (64,))."),
        ("k3", {"quantity": "k3-pair"},
         "k3(d) takes a log-ratio ('d'), not a pair of log-probabilities: "
         "audit a quantity of d, such as k3."),
        ("pair", {"quantity": "k3", "at": ("policy=1",)},
         "--at: 'reference' is missing; k3-pair takes policy, reference."),
        ("k3", {"quantity": "k3", "with_": ("beta=1",)},
         "--with: k3(d) has no parameter 'beta'; it has d."),
        ("k3", {"quantity": "logsumexp"},
         "k3(d): no parameter is known to be logits; say which with --args logits=NAME."),
        ("weigh", {"quantity": "ratio-pair"},
         "weigh(policy, old, adv): policy is 'policy'; no parameter is known to be reference; say which with "
         "--args policy=policy,reference=NAME."),
        ("lse", {"truth": "logsumexp(logits)"},
         "the formula is one of vectors, and no grid is known for them: give --at logits=1,0.5."),
    ],
)  # fmt: skip
def test_a_function_that_does_not_fit_is_one_exact_line(module, name, request_, text):
    """What a function takes, returns or raises is told in one line, with its own names."""
    assert error(f"{module}:{name}", backends=("torch",), **request_) == text


def test_a_function_without_a_quantity_asks_what_it_ought_to_compute(module):
    """Without --quantity or --truth there is nothing to hold a function against."""
    target = f"{module}:k3"
    text = f"what ought {target} to compute? Give --quantity ({KNOWN}) or --truth FORMULA."
    assert error(target) == text


def test_a_target_that_is_not_there(module, tmp_path, monkeypatch):
    """A file, a module or a name that is not there is told with where it was looked for."""
    monkeypatch.chdir(tmp_path)
    assert error("mine", quantity="k3") == (
        "'mine' does not name a function: write package.module:function or path/to/file.py:function."
    )
    assert error("nowhere.py:f", quantity="k3") == f"no file 'nowhere.py' (looked in {tmp_path})."
    assert error("no_such_module:f", quantity="k3") == (
        f"no module 'no_such_module' (looked in {tmp_path} and the installed packages)."
    )
    assert error(f"{module}:pear", quantity="k3").startswith(f"'{module}' has no 'pear'; did you mean pair?")


def test_an_error_in_a_formula_has_a_caret():
    """A formula that cannot be read is shown with the place: three lines."""
    for option in ("expr", "truth"):
        request = {"expr": NAIVE, option: "exp(d) - - ) 1"}
        first, text, caret = error(**request).split("\n")
        assert first.startswith("expression: ")
        assert text == "exp(d) - - ) 1"
        assert caret == " " * 11 + "^"


@pytest.mark.parametrize(
    ("request_", "kind", "name", "inputs"),
    [
        ({"quantity": "k3"}, Task, "k3", ("d",)),
        ({"quantity": "K3"}, Task, "k3", ("d",)),
        ({"quantity": "k3", "expr": "exp(ref - policy) - (ref - policy) - 1"}, Task, "k3-pair",
         ("policy", "reference")),
        ({"quantity": "k1", "expr": "logp - ref_logp"}, Task, "k1-pair", ("policy", "reference")),
        ({"quantity": "k3", "expr": "exp(x) - x - 1"}, Task, "k3", ("d",)),
        ({"quantity": "k3", "expr": "beta*(exp(d) - d - 1)", "with_": ("beta=1",)}, Task, "k3", ("d",)),
        ({}, Task, "expression", ("d",)),
        ({"expr": "policy - reference"}, Task, "expression", ("policy", "reference")),
        ({"quantity": "k3", "at": ("d=inf",)}, VectorTask, "k3", ("d",)),
        ({"expr": "sum(x)", "at": ("x=1,2",)}, VectorTask, "expression", ("x",)),
        ({"expr": "logsumexp(z)", "quantity": "logsumexp"}, VectorTask, "logsumexp", ("logits",)),
    ],
)  # fmt: skip
def test_the_quantity_is_chosen_by_what_is_taken(request_, kind, name, inputs):
    """k3 of two log-probabilities is k3-pair; a formula alone is its own truth; inf goes the vector way."""
    task = prepare(Request(None, **{"expr": NAIVE, "backends": ("numpy",)} | request_)).task
    assert type(task) is kind
    what = task.quantity if kind is Task else task.problem
    assert (what.name, what.inputs) == (name, inputs)


def test_pair_functions_are_chosen_for_k3(module):
    """--quantity k3 of a function of two log-probabilities is audited as k3-pair, and of d as k3."""
    for name, quantity in (("pair", "k3-pair"), ("k3", "k3")):
        task = prepare(Request(f"{module}:{name}", quantity="k3")).task
        assert task.quantity.name == quantity
        assert {t.backend.name for t in task.targets} == {"torch"}


@pytest.mark.parametrize(("only", "outputs"), [
    (None, ("value", "gradient")), ("value", ("value",)),
    ("gradient", ("gradient",)), ("all", ("value", "gradient"))])  # fmt: skip
def test_only_selects_outputs(only, outputs):
    """--only value or gradient leaves the other out."""
    assert prepare(Request(None, expr=NAIVE, only=only, backends=("numpy",))).task.outputs == outputs


def test_every_line_is_short_enough_to_be_read():
    """No message but a list of names is longer than 300 characters, and none ends without a full stop."""
    for request in ({"max_rel": -1.0}, {"quantity": "k3", "clamp": "x"}, {"at": ("d",)}, {"expr": "a*b"}):
        text = error(**({"expr": NAIVE} | request))
        assert len(text) < 300
        assert text.endswith(".")


def test_args_that_name_no_variable_say_so():
    """--args d=x of a formula without x: there is no x in it."""
    assert error(expr=NAIVE, quantity="k3", args="d=x") == (
        "expression: there is no 'x' in it; its names are d."
    )


def test_against_without_a_quantity_says_what_is_missing():
    """A stock formulation is one of a quantity: without --quantity there is none to show."""
    assert error(expr=NAIVE, against=("naive",)) == (
        "--against needs a --quantity: it names a stock formulation of one."
    )


def test_against_at_infinity_is_not_told_to_give_a_quantity():
    """With --quantity k3 given, a line that asks for --quantity is of no help."""
    text = ""
    try:
        prepare(
            Request(None, expr=NAIVE, quantity="k3", at=("d=inf",), against=("naive",), backends=("numpy",))
        )
    except UsageError as refused:
        text = str(refused)
    assert "needs a --quantity" not in text


def test_digit_separators_are_refused_as_in_a_grid():
    """1_0 is no number on a command line, in --at as in --grid."""
    assert error(expr=NAIVE, at=("d=1_0",)) == f"--at 'd=1_0': '1_0' is not a number; {FORM}"
