"""What is refused, and that the message shows the place: three lines, the caret under the character."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kl_audit.errors import UsageError
from kl_audit.expression import ExpressionError, parse
from kl_audit.expression.functions import function_names


def message(text):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    return str(caught.value)


def attempt(text):
    """Return (expression, None) or (None, message); whatever else is raised is a failure."""
    try:
        return parse(text), None
    except ExpressionError as error:
        return None, str(error)


#: The text, then all that the message says.
EXACT = [
    ("x $ 1", """\
expression: unknown character '$' (U+0024), expected a number, a name, an operator or a bracket
x $ 1
  ^"""),
    ("exp(x) - foo(x)", f"""\
expression: unknown function 'foo', expected one of {', '.join(function_names())}
exp(x) - foo(x)
         ^"""),
    ("1 + exp(x, y)", """\
expression: exp with 2 arguments, expected exp(x)
1 + exp(x, y)
    ^"""),
    ("sum(x, keepdim=True)", """\
expression: unknown keyword 'keepdim' of sum, expected axis= or dim= ('==' compares)
sum(x, keepdim=True)
       ^"""),
    ("2 * exp(x", """\
expression: '(' is never closed, expected ')'
2 * exp(x
       ^"""),
    ("x[0", """\
expression: '[' is never closed, expected ']'
x[0
 ^"""),
    ("(x))", """\
expression: ')' closes nothing, expected an opening bracket before it
(x))
   ^"""),
    ("exp(x]", """\
expression: ']' closes '(', expected ')'
exp(x]
     ^"""),
    ("exp(x) -", """\
expression: nothing follows '-', expected a value after it
exp(x) -
       ^"""),
    ("a < b < c", """\
expression: a chained comparison, expected one at a time: (a < b) & (b < c)
a < b < c
      ^"""),
    ("x + (y = 2)", """\
expression: '=' inside an expression, expected '==' to compare
x + (y = 2)
       ^"""),
    ("d = x; y", """\
expression: 'd' is assigned but never used, expected a use of it, or no assignment
d = x; y
^"""),
    ("d = x", """\
expression: 'd' is assigned and nothing follows, expected a final formula after it, or '==' to compare
d = x
  ^"""),
    ("exp = x; exp", """\
expression: assignment to the function 'exp', expected another name
exp = x; exp
^"""),
    ("1 + x.exp()", """\
expression: a call of the method 'exp', expected a function: f(x), not x.f()
1 + x.exp()
     ^"""),
    ("x.dtype", """\
expression: access to the attribute 'dtype', expected a name without '.'
x.dtype
 ^"""),
    ("x + 'a'", """\
expression: a string literal, expected a number or a name
x + 'a'
    ^"""),
    ("1.2.3 * x", """\
expression: malformed number '1.2.3', expected a literal such as 0.5, 1e-8 or 0x1.8p-3
1.2.3 * x
^"""),
    ("1 + 2x", """\
expression: malformed number '2x', expected an operator between a number and a name, such as 2 * x
1 + 2x
    ^"""),
    ("x^0.5", """\
expression: an exponent that is not an integer, expected an integer literal (sqrt(x) is the square root)
x^0.5
  ^"""),
    ("x**n", """\
expression: an exponent that is not an integer, expected an integer literal
x**n
   ^"""),
    ("x < 1 & y > 2", """\
expression: '&' of a number, expected conditions, in parentheses: (a < b) & (c < d)
x < 1 & y > 2
    ^"""),
    ("mean(x < 0)", """\
expression: mean of a condition, expected a number, such as where(condition, 1, 0)
mean(x < 0)
     ^"""),
    ("x + 1 y", """\
expression: unexpected 'y', expected an operator before it
x + 1 y
      ^"""),
    ("a + b\nc", """\
expression: a statement before the last that assigns nothing, expected 'name = ...', or one formula alone
a + b c
^"""),
    ("1 + 2", """\
expression: no variable, so nothing to audit, expected a name such as x or d
1 + 2
^"""),
    ("", """\
expression: empty text, expected a formula such as exp(d) - d - 1

^"""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), EXACT, ids=[t for t, _ in EXACT])
def test_the_message_shows_the_place(text, expected):
    """What was wrong, what is expected, the text, and a caret under the place."""
    assert message(text) == expected


REFUSED = [
    ("   \n ", "empty text"),
    (";;", "empty text"),
    ("lgo(x)", "unknown function 'lgo' (did you mean 'log'?)"),
    ("torch.foo(x)", "unknown function 'foo'"),
    ("log2(x)", "unknown function 'log2' (did you mean"),
    ("exp()", "exp with 0 arguments"),
    ("where(x < 1, 2)", "where with 2 arguments"),
    ("clip(x)", "clip without a limit"),
    ("clip(x, None, None)", "clip without a limit"),
    ("clip(x, 1, min=2)", "a limit of clip given twice"),
    ("clip(x, min=1, low=2)", "a limit of clip given twice"),
    ("sum(axis=0, x)", "an argument without a name after one with it"),
    ("where(x = 1, 2, 3)", "unknown keyword 'x' of where"),
    ("max(x, y, axis=1)", "max of several arrays along an axis"),
    ("sum(x, axis=0, dim=0)", "sum with two axes"),
    ("sum(x, axis=y)", "an axis that is not an integer"),
    ("softmax(x, dim=None)", "an axis that is not an integer"),
    ("x[1.5]", "an index that is not an integer"),
    ("x[y]", "an index that is not an integer"),
    ("x[:2]", "unknown character ':'"),
    ("[1, 2]", "a list without an array"),
    ("()", "empty parentheses"),
    ("x + ()", "empty parentheses"),
    ("(x, y)", "unexpected ','"),
    ("(x)(y)", "unexpected '('"),
    ("x(3)", "unknown function 'x'"),
    ("exp + 1", "the function 'exp' is not called"),
    ("x + * y", "nothing follows '+'"),
    ("x * + ", "nothing follows '+'"),
    ("not", "nothing follows 'not'"),
    ("x + not y", "'not' inside an operator that binds tighter"),
    ("x and 1", "'and' of a number"),
    ("-(x < 1)", "'-' of a condition"),
    ("(x < 1) * y", "'*' of a condition"),
    ("b = x < 1; b + 1", "'+' of a condition"),
    ("c = 2; where(c, x, y)", "where of a number"),
    ("1 < 2 and x < 1", "'<' of a constant"),
    ("sum(3) + x", "sum of a constant"),
    ("float32(0.1) * x", "float32 of a constant"),
    ("log(None) + x", "None is no value"),
    ("x + True", "True is no value"),
    ("pi = 3; pi * x", "assignment to the constant 'pi'"),
    ("x = 1; x = 2; x + y", "'x' is assigned but never used"),
    ("exp(x) = y", "'=' inside an expression"),
    ("x += 1", "nothing follows '+'"),
    ("x == = y", "nothing follows '=='"),
    ("1e * x", "malformed number '1e'"),
    ("0x * x", "malformed number '0x'"),
    ("1_000 * x", "malformed number '1_000'"),
    ("1e99999999999 * x", "the number '1e99999999999' is outlandish"),
    ("1" * 2000 + " * x", "is outlandish"),
    ("x^99999999999", "an exponent that is no small integer"),
    ("x^9^9^9^9", "an exponent that is no small integer"),
    ("x^2^-1", "an exponent that is no small integer"),
    ("x if y else z", "'if' is a keyword of Python"),
    ("x \u2212 y", "unknown character '\u2212' (U+2212), expected '-'"),
    ("x % 2", "unknown character '%'"),
    ("x # note", "unknown character '#'"),
    ("x..y", "a stray '.'"),
    ("x + \x00", "unknown character (U+0000)"),
    ("\u03bb * x", "unknown character '\u03bb'"),
]


@pytest.mark.parametrize(("text", "problem"), REFUSED, ids=[repr(t[:20]) for t, _ in REFUSED])
def test_what_is_no_formula_is_refused(text, problem):
    """Each kind of mistake has a message of its own."""
    assert message(text).startswith(f"expression: {problem}") or problem in message(text).splitlines()[0]


UNSAFE = [
    "__import__('os').system('x')", "().__class__", "().__class__.__bases__[0]", 'open("f")', "open(f)",
    "eval(x)", "exec(x)", "compile(x)", "globals()", "getattr(x, y)", "lambda: x", "import os",
    "from os import x", "x.__class__", "__builtins__", "__x__", "x.__init__.__globals__", "[x for x in y]",
    "{x: y}", "f'{x}'", "x := 1", "yield x", "await x", "np.load(x)", "torch.load(x)", "os.system(x)",
    "np.exp.__call__(x)", "math.__dict__", "print(x)", "x; import os", "del x", "class x: pass", "@x", "\\x",
    "`x`", "x!", "*x", "**x",
]  # fmt: skip


@pytest.mark.parametrize("text", UNSAFE)
def test_what_is_not_arithmetic_is_refused(text):
    """Nothing but the grammar is read: no attributes, imports, strings or unknown calls."""
    assert message(text).startswith("expression: ")


def test_it_is_a_usage_error():
    """The command line shows it as it shows every wrong use."""
    with pytest.raises(UsageError) as caught:
        parse("x +")
    assert (caught.value.problem, caught.value.position) == ("nothing follows '+'", 2)


def test_a_long_text_is_shown_in_part():
    """At most 100 columns around the place, with dots where something is left out."""
    lines = message("a" * 300 + " $ " + "b" * 300).splitlines()
    assert len(lines[1]) == 100
    assert lines[1].startswith("...a")
    assert lines[1].endswith("b...")
    assert lines[1][lines[2].index("^")] == "$"


def test_a_text_may_have_10000_characters():
    """The limit of the length is exact."""
    assert parse("x" + " " * 9_999).names == ("x",)
    assert "the text has 10,001 characters, expected at most 10,000" in message("x" + " " * 10_000)


@pytest.mark.parametrize(
    "text",
    ["(" * 4000 + "x" + ")" * 4000, "-" * 5000 + "x", "exp(" * 1500 + "x" + ")" * 1500, "not " * 2000 + "x",
     "x" + "+x" * 4000, "x" + "[0]" * 3000, "~" * 5000 + "x", "max(" + "x," * 3000 + "x)", "x" + "^1" * 4000,
     "x == " * 1000 + "x", "x" + " and x" * 1500, "1e999," * 1500, "where(x,x," * 900 + "x" + ")" * 900,
     "a=x+x;" + "a=a+a;" * 1500 + "a"],
)  # fmt: skip
def test_deep_texts_never_exhaust_the_stack(text):
    """Nesting beyond 200 is refused, and what is not nested is read, however long."""
    e, error = attempt(text)
    if e is None:
        assert len(error.split("\n")) == 3
    else:
        assert len(str(e)) > 10_000 or parse(str(e)) == e


def test_the_limit_of_the_nesting():
    """190 calls in one another are read, 201 are not."""
    assert parse("(" * 190 + "x" + ")" * 190).names == ("x",)
    assert "nested deeper than 200" in message("(" * 201 + "x" + ")" * 201)
    assert "nested deeper than 200" in message("x" + " + x" * 201)
    assert parse("x" + " + x" * 199).names == ("x",)


def check_any(text):
    """A text is read, or refused in three lines with the caret inside what is shown."""
    e, error = attempt(text)
    if e is not None:
        assert e.names
        assert parse(str(e)) == e
        return
    first, shown, caret = error.split("\n")
    assert len(error.splitlines()) == 3
    assert re.fullmatch(r"expression: .+, expected .+", first)
    assert re.fullmatch(r" *\^", caret)
    assert len(caret) <= max(len(shown), 1)
    assert re.fullmatch(r"[ -~]*", shown)
    assert len(shown) == min(len(text), 100)


@settings(max_examples=600, deadline=None)
@given(st.text(max_size=150))
@example("\ud800")
@example("x\x85y\u2028")
def test_any_text_is_read_or_refused(text):
    """Nothing but ExpressionError comes out of arbitrary text."""
    check_any(text)


PIECES = [
    "x", "y", "d", "exp", "clip", "where", "sum", "max", "torch", "F", "None", "axis", "min", "(", ")", "[",
    "]", ",", ";", "=", "==", "<", "+", "-", "*", "/", "^", "**", "&", "|", "~", "not ", " and ", ".", "1",
    "0.5", "1e-8", "0x1p", "-1", "\n", " ", "inf", "e", "fp16", "lambda ", "__", "'", "x, ", "(x)", "exp(x)",
    "x[0]", "x < 1",
]  # fmt: skip


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_any_tokens_are_read_or_refused(text):
    """Texts made of what formulas are made of, in any order."""
    check_any(text)
