"""Finding a function by its address."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from callee.helpers import THEIRS, their

from kl_audit.callee import load
from kl_audit.errors import UsageError


def says(spec: str) -> str:
    with pytest.raises(UsageError) as caught:
        load(spec)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write modules into an empty current folder; forget them afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_function_of_a_module_is_found():
    """An importable module and a name give the function, its name and its place."""
    loaded = load("textwrap:dedent")
    assert loaded.fn("  a") == "a"
    assert loaded.name == "textwrap:dedent"
    assert loaded.file.endswith("textwrap.py")
    assert loaded.line > 1
    assert list(loaded.signature.parameters) == ["text"]


def test_a_builtin_has_no_place():
    """What is compiled has neither file nor line."""
    loaded = load("math:expm1")
    assert loaded.fn is math.expm1
    assert (loaded.file, loaded.line) == (None, None)


def test_a_file_is_loaded_by_its_path():
    """A path to a file works, and the line is that of the definition."""
    loaded = their("torch", "k3")
    assert loaded.name == "torch_losses:k3"
    assert Path(loaded.file) == THEIRS / "torch_losses.py"
    text = (THEIRS / "torch_losses.py").read_text(encoding="utf-8").splitlines()
    assert text[loaded.line - 1].startswith("def k3(")


def test_a_file_is_run_once():
    """Two functions of a file come from the same module."""
    assert their("torch", "k3").fn.__globals__ is their("torch", "prints").fn.__globals__


def test_a_file_finds_its_neighbours(write):
    """The folder of a file is on the path."""
    write("sub/neighbour_here.py", "BASE = 2\n")
    write("sub/main_here.py", "from neighbour_here import BASE\ndef f(d): return d * BASE\n")
    assert load("sub/main_here.py:f").fn(3) == 6


def test_a_file_may_have_the_name_of_a_module(write):
    """A file called like a module that is loaded already does not get that module."""
    write("sub/json.py", "def f(d): return d + 1\n")
    assert load("sub/json.py:f").fn(1) == 2
    assert sys.modules["json"].__name__ == "json"


def test_the_current_folder_is_searched(write):
    """A module in the current folder is importable."""
    write("in_here.py", "def f(d): return d\n")
    assert load("in_here:f").fn(4) == 4


@pytest.mark.parametrize("name", ["Estimator.of", "Estimator.made", "Estimator.bound"])
def test_methods_are_found(name):
    """Static, class and instance methods can be named; the last on an instance made for it."""
    import torch

    loaded = their("torch", name)
    assert list(loaded.signature.parameters) == ["d"]
    assert loaded.fn(torch.zeros(2)).tolist() == [0.0, 0.0]
    assert ("Estimator() was made without arguments" in loaded.notes) is (name == "Estimator.bound")


@pytest.mark.parametrize("name", ["KLLoss", "instance"])
def test_a_module_of_torch_shows_the_parameters_of_forward(name):
    """A class is instantiated, an instance called; the signature is that of forward."""
    loaded = their("torch", name)
    assert list(loaded.signature.parameters) == ["new_logps", "ref_logps", "mask"]
    assert loaded.file.endswith("torch_losses.py")


def test_an_autograd_function_is_called_by_apply():
    """torch.autograd.Function shows the parameters of forward, without ctx."""
    import torch

    loaded = their("torch", "K3")
    assert list(loaded.signature.parameters) == ["d"]
    assert loaded.fn(torch.zeros(2)).tolist() == [0.0, 0.0]
    assert loaded.notes == ("K3.apply is called",)


@pytest.mark.parametrize(("kind", "name"), [("jax", "k3"), ("torch", "compiled"), ("jax", "k3_of_kind")])
def test_compiled_functions_keep_their_signature(kind, name):
    """jax.jit and torch.compile are seen through."""
    loaded = their(kind, name)
    assert next(iter(loaded.signature.parameters)) in ("d", "log_ratio")
    assert loaded.file.endswith(f"{kind}_losses.py")


def test_what_takes_anything_has_no_signature(write):
    """``*args`` says nothing about the parameters."""
    write("anything.py", "def f(*args, **kwargs): return args[0]\n")
    assert load("anything:f").signature is None


def test_printing_on_import_is_noted_not_shown(write, capsys):
    """What a module prints stays away from the terminal."""
    write("loud.py", "import sys\nprint('hello\\nyou')\nprint('!', file=sys.stderr)\ndef f(d): return d\n")
    assert load("loud:f").notes == ("prints when imported: hello",)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("spec", ["textwrap", "textwrap:", ":dedent", ""])
def test_an_address_needs_a_colon(spec):
    """Without module and name there is nothing to find."""
    form = "write package.module:function or path/to/file.py:function"
    assert says(spec) == f"'{spec}' does not name a function: {form}."


def test_a_missing_module_is_named(write):
    """A module that is not there is told from one that is broken."""
    here = f"(looked in {Path.cwd()} and the installed packages)."
    assert says("nowhere_to_be:f") == f"no module 'nowhere_to_be' {here}"
    assert says("nowhere_to_be.at_all:f") == f"no module 'nowhere_to_be', so no 'nowhere_to_be.at_all' {here}"
    assert says("json.nothing:f") == f"no module 'json.nothing' {here}"
    assert says("gone.py:f") == f"no file 'gone.py' (looked in {Path.cwd()})."


def test_an_error_inside_a_module_is_told(write):
    """An import that fails inside names the module and the exception's first line."""
    write("lacks.py", "import flash_attention_of_old\n")
    write("broken.py", "raise RuntimeError('no GPU here.\\nSecond line')\n")
    write("syntax.py", "def f(:\n")
    write("leaves.py", "import sys\nsys.exit(2)\n")
    assert says("lacks:f") == (
        "'lacks' cannot be imported: ModuleNotFoundError: No module named 'flash_attention_of_old'."
    )
    assert says("broken:f") == "'broken' cannot be imported: RuntimeError: no GPU here."
    assert says("broken.py:f") == "'broken.py' cannot be imported: RuntimeError: no GPU here."
    assert says("syntax:f").startswith("'syntax' cannot be imported: SyntaxError: ")
    assert says("leaves:f") == "importing 'leaves' calls sys.exit(2)."


def test_a_relative_import_in_a_file_has_a_hint(write):
    """A file of a package has to be named as a module of it."""
    write("pkg_here/__init__.py", "")
    write("pkg_here/part.py", "from . import other\n")
    assert says("pkg_here/part.py:f") == (
        "'pkg_here/part.py' cannot be imported: ImportError: attempted relative import with no known "
        "parent package; name it as a module of its package (package.module:function)."
    )


def test_a_missing_name_shows_what_is_there(write):
    """Close names first, then the callables that the module itself defines."""
    write("ours.py", "from json import dumps\ndef kl_loss(d): pass\ndef other(d): pass\n_x = 1\n")
    write("bare.py", "VALUE = 1\n")
    assert says("ours:kl_los") == "'ours' has no 'kl_los'; did you mean kl_loss? It has kl_loss, other."
    assert says("ours:zzz") == "'ours' has no 'zzz'. It has kl_loss, other."
    assert says("bare:zzz") == "'bare' has no 'zzz', and nothing that can be called."
    write("many.py", "".join(f"def f{i:02}(): pass\n" for i in range(12)))
    assert says("many:zzz").endswith("f08, f09 and 2 more.")


def test_what_cannot_be_called_is_refused(write):
    """Numbers, submodules and classes whose instances cannot be called are no functions."""
    file = THEIRS / "torch_losses.py"
    assert says(f"{file}:BETA") == f"'{file}:BETA' is a float, not a function."
    assert says(f"{file}:nn") == f"'{file}:nn' is a module: write torch.nn:function."
    assert says(f"{file}:Holder") == (
        f"'{file}:Holder' is a class whose instances cannot be called: "
        "write package.module:function or path/to/file.py:function."
    )
    text = says(f"{file}:NeedsArguments")
    assert text.startswith(
        f"'{file}:NeedsArguments' is a class that cannot be made without arguments (TypeError: "
    )
    assert "'beta'" in text
    assert text.endswith("write a function that makes and calls it, and name that.")
