"""Case files that cannot be used: the file, the line, what was expected."""

from __future__ import annotations

import pytest
from cases.helpers import HEAD, PART, case_of

from kl_audit.cases.load import builtin, read_case, read_folder
from kl_audit.cases.places import line_of
from kl_audit.errors import UsageError

TEXT = HEAD + PART
AT = {line.partition(" = ")[0]: n for n, line in enumerate(TEXT.splitlines(), 1) if " = " in line}


def refused(text):
    with pytest.raises(UsageError) as error:
        read_case(text, "case.toml")
    place, _, message = str(error.value).partition(": ")
    return place, message


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ('name = "value"', 'name = "value"\nnmae = 1', "name+1", "unknown key 'nmae', expected expr, form"),
        ("kind =", "kinds =", "kind", "unknown key 'kinds', expected id, title"),
        ('kind = "cancellation near zero"', 'kind = "x"', "kind", "unknown kind 'x', expected one of"),
        ('expr = "exp(d) - d - 1"', 'expr = "exp(d"', "expr", "expression: "),
        ('expr = "exp(d) - d - 1"', 'expr = "exp(d) - y"', "inputs", "has a 'y' that is neither"),
        ('expr = "exp(d) - d - 1"', 'function = "torch.exp"', "expr", "names no function, expected package"),
        ('expr = "exp(d) - d - 1"', 'formulation = "nave"', "inputs", "unknown formulation of k3 'nave'"),
        ('quantity = "k3"', 'quantity = "k4"', "inputs", "unknown quantity 'k4'. Known: "),
        ('quantity = "k3"', 'quantity = "k3-pair"', "inputs", "k3-pair takes policy, reference; the inputs"),
        ('quantity = "k3"', 'quantity = "k3"\ntruth = "d"', "quantity+1", "both say what is right"),
        ('inputs = { d = "1e-6" }', 'inputs = { d = "x" }', "inputs", "input 'd=x': 'x' is not a number"),
        ('inputs = { d = "1e-6" }', "inputs = {}", "inputs", "no inputs, expected at least one"),
        (
            'inputs = { d = "1e-6" }',
            "inputs = { d = { normal = [0, 1] } }",
            "inputs",
            "how many? Expected cou",
        ),
        ('["torch"]', '["pytorch"]', "backends", "unknown back end 'pytorch', expected numpy, torch"),
        ('["eager"]', '["fast"]', "modes", "no mode 'fast', expected compile, eager"),
        ('"negative"', '"bad"', "reproduced_when", "'bad' is no condition, expected 'as reported'"),
        ('"negative"', '"as reported"', "reproduced_when", "as reported, but nothing is"),
        ('["eager"]', '["eager"]\nexpected = "broken"', "modes+1", "unknown outcome 'broken', expected one"),
        (
            '["eager"]',
            '["eager"]\nexpected = { "torch 2" = "fixed" }',
            "modes+1",
            "'torch 2' selects nothing",
        ),
        ('["eager"]', '["eager"]\nright = "five"', "modes+1", "'five' is no number"),
        ('["eager"]', '["eager"]\ndtype = "fp8"', "modes+1", "unknown dtype 'fp8'. Known: fp64"),
        ('["eager"]', '["eager"]\nelement = -1', "modes+1", "'element' is -1, expected greater"),
        ('["eager"]', '["eager"]\nwrt = "x"', "modes+1", "'x' is no input, expected one of d"),
        ('["eager"]', "[]", "modes", "'modes' is [], expected "),
        ('id = "repo-1"', 'id = "Repo 1"', "id", "'id' is 'Repo 1', expected "),
    ],
)
def test_a_bad_key_is_named_with_its_line(old, new, key, message):
    """One line: the file, the line of the key, what is wrong, what was expected."""
    assert old in TEXT
    place, told = refused(TEXT.replace(old, new))
    name, _, more = key.partition("+")
    assert place == f"case.toml:{AT[name] + int(more or 0)}", told
    assert message in told


@pytest.mark.parametrize("key", ["id", "title", "source", "kind", "about"])
def test_a_missing_field_is_named(key):
    """With what it is for."""
    text = "\n".join(line for line in TEXT.splitlines() if not line.startswith(f"{key} = "))
    assert f"'{key}' is missing: " in refused(text)[1]


def test_a_missing_field_of_a_part_stands_at_the_part():
    """The line is that of its [[part]]."""
    place, told = refused(TEXT.replace('inputs = { d = "1e-6" }\n', ""))
    assert place == f"case.toml:{TEXT.splitlines().index('[[part]]') + 1}"
    assert told == "part 1: 'inputs' is missing: decimal or hexadecimal numbers, in order."


def test_what_is_no_toml_is_told_with_its_line():
    """The parser's own reason, and the line."""
    place, told = refused(TEXT + "\nx = = 1\n")
    assert place == f"case.toml:{len(TEXT.splitlines()) + 2}"
    assert told.startswith("no TOML: ")


def test_none_or_two_subjects_are_refused():
    """Exactly one of expr, formulation and function."""
    assert "it has none, expected exactly one" in refused(TEXT.replace("expr =", "says ="))[1]
    both = TEXT.replace("expr =", 'formulation = "naive"\nexpr =')
    assert "it has expr and formulation" in refused(both)[1]


def test_two_files_with_one_id_are_refused(tmp_path):
    """Both files are named."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(TEXT, encoding="utf-8")
    with pytest.raises(UsageError, match=r"b\.toml:2: id 'repo-1' is that of .*a\.toml too"):
        read_folder(tmp_path)


def test_a_folder_without_cases_is_told(tmp_path):
    """So is one that is not there."""
    with pytest.raises(UsageError, match="no case files in"):
        read_folder(tmp_path)
    with pytest.raises(UsageError, match="no folder"):
        read_folder(tmp_path / "nowhere")


def test_two_parts_of_one_name_are_refused():
    """A row is known by the name of its part."""
    assert "two parts are called 'value'" in refused(TEXT + PART)[1]


def test_a_line_is_found_past_a_text_of_several_lines():
    """What looks like a key within a text is none."""
    text = 'about = """\nkind = 1\n[[part]]\n"""\nkind = 2\n[[part]]\nname = 1\n[[part]]\nname = 2\n'
    assert line_of(text, ("kind",)) == 5
    assert line_of(text, ("part", 0, "name")) == 7
    assert line_of(text, ("part", 1, "name")) == 9
    assert line_of(text, ("part", 1, "nothing")) == 8
    assert line_of(text, ("nothing",)) == 1


def test_a_case_is_read_as_it_is_written():
    """The types of the keys, and the defaults."""
    part = case_of(inputs='{ d = "0x1p-20", c = [1, 2.5] }', quantity=None, expr='"exp(d) - c"').part[0]
    assert part.inputs == {"d": "0x1p-20", "c": [1, 2.5]}
    assert part.dtype == "fp32"
    assert part.expected == "reproduced"


def test_the_built_in_cases_can_all_be_read():
    """More than 79: a case for each report, and those of the sources."""
    ids = [c.id for c in builtin()]
    assert ids == sorted(ids)
    assert {"tunix-2315", "tunix-1560", "torchforge-664", "verl-7855"} <= set(ids)
