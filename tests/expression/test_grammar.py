"""What a text means: precedence, associativity, names, spellings, and the text of a tree."""

from __future__ import annotations

import pickle
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kl_audit.errors import UsageError
from kl_audit.expression import Expression, parse
from kl_audit.expression.tree import Binary, Call, Constant, Name, Negate, Not, Number, Power, Take, to_text

#: Texts that say the same, the second with every parenthesis.
SAME = [
    ("a + b * c", "a + (b * c)"),
    ("a - b - c", "(a - b) - c"),
    ("a / b / c", "(a / b) / c"),
    ("a / b * c", "(a / b) * c"),
    ("-a * b", "(-a) * b"),
    ("-a**2", "-(a**2)"),
    ("a * -b", "a * (-b)"),
    ("a - -b", "a - (-b)"),
    ("a**2 * b", "(a**2) * b"),
    ("a ^ 2 ^ 3", "a ** 8"),
    ("2**3**2 * a", "2**9 * a"),
    ("a**-2", "a**(-2)"),
    ("a**-2**2", "a**-4"),
    ("-a[0]**2", "-((a[0])**2)"),
    ("a + b < c * d", "(a + b) < (c * d)"),
    ("not a < b", "not (a < b)"),
    ("not a < b and c < d", "(not (a < b)) and (c < d)"),
    ("a < b or c < d and e2 < f", "(a < b) or ((c < d) and (e2 < f))"),
    ("p & q | r", "(p & q) | r"),
    ("p | q & r", "p | (q & r)"),
    ("~p & q", "(~p) & q"),
    ("p and q | r", "p and (q | r)"),
    ("p or q & r", "p or (q & r)"),
    ("+a", "a"),
    ("a\n", "a"),
    (";a;", "a"),
    ("(a\n +\n b)", "a + b"),
    ("d = a - b\nexp(d)\n", "d = a - b; exp(d)"),
    ("1e-8 * a", "0.00000001 * a"),
    ("0x1.8p-3 * a", "0.1875 * a"),
    (".5 * a", "0.5 * a"),
    ("1. * a", "1 * a"),
    ("0x10 * a", "16 * a"),
    ("torch.exp(a)", "exp(a)"),
    ("np.log1p(a) + math.pi", "log1p(a) + pi"),
    ("F.log_softmax(a, dim=-1)", "log_softmax(a)"),
    ("jax.nn.softmax(a, 0)", "softmax(a, axis=0)"),
    ("torch.nn.functional.logsigmoid(a)", "log_sigmoid(a)"),
    ("sum(a, None)", "sum(a)"),
    ("clamp(a, max=3)", "clip(a, None, 3)"),
    ("clamp(a, max=3, min=-b)", "clip(a, -b, 3)"),
    ("clip(a, low=1)", "clip(a, 1)"),
    ("max(a, b, c)", "maximum(maximum(a, b), c)"),
    ("sg(a) + detach(a)", "stop_gradient(a) + stop_gradient(a)"),
    ("bf16(a) + fp16(a) + fp32(a) + fp64(a)", "bfloat16(a) + float16(a) + float32(a) + float64(a)"),
    ("a[1, -2]", "a[[1, -2]]"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "meaning"), SAME)
def test_texts_that_say_the_same_have_one_tree(text, meaning):
    """Precedence and associativity are Python's, and spellings of a thing are one thing."""
    assert parse(text) == parse(meaning)


DIFFERENT = [
    ("a - (b - c)", "a - b - c"),
    ("(-a)**2", "-a**2"),
    ("a[1]", "a[[1]]"),
    ("min(a)", "a"),
    ("max(a)", "max(a, axis=-1)"),
    ("a**8", "(a**2)**3"),
    ("a + b", "b + a"),
    ("0.1 * a", "0x1.999999999999ap-4 * a"),
    ("d = a; d", "a"),
]


@pytest.mark.parametrize(("text", "other"), DIFFERENT)
def test_different_formulas_have_different_trees(text, other):
    """What computes differently is told apart."""
    assert parse(text) != parse(other)


def test_literals_are_kept_exactly():
    """A literal is the number that was written, not its float64."""
    assert parse("0.1 * x").body == Binary("*", Number(Fraction(1, 10)), Name("x"))
    assert parse("0x1.8p-3 * x").body == Binary("*", Number(Fraction(3, 16)), Name("x"))
    assert parse("1e400 * x").body == Binary("*", Number(Fraction(10) ** 400), Name("x"))


def test_facts_of_a_formula():
    """Free variables come in order of first appearance; functions by canonical name."""
    e = parse("d = ref - policy; clamp(d, max=top, min=low0) + torch.exp(d) * ref")
    assert e.names == ("ref", "policy", "top", "low0")
    assert e.functions == {"clip", "exp"}
    assert e.elementwise


@pytest.mark.parametrize("text", ["sum(x)", "x[0]", "d = log_softmax(x); exp(d)", "cumsum(x)", "max(x)"])
def test_what_mixes_elements_is_not_elementwise(text):
    """Reductions, functions along an axis and subscripts are not elementwise."""
    assert not parse(text).elementwise


def test_max_of_two_is_elementwise():
    """max of one array reduces it, of two it is elementwise."""
    assert parse("max(x, y)").elementwise


def test_a_name_may_be_assigned_again():
    """The last value counts, and what was free before stays a variable."""
    e = parse("x = clip(x, -20, 20); exp(x) - x - 1")
    assert e.names == ("x",)
    assert str(e) == "x = clip(x, -20, 20); exp(x) - x - 1"


def test_expressions_travel():
    """An expression can be pickled, and is immutable and hashable."""
    e = parse("d = a - b; exp(d)")
    assert pickle.loads(pickle.dumps(e)) == e
    assert len({e, parse("d=a-b;exp(d)")}) == 1
    with pytest.raises(AttributeError):
        e.text = "x"


def test_a_missing_variable_is_named():
    """A call without a variable says which."""
    with pytest.raises(UsageError, match="no value for 'b', expected values for a, b; got a"):
        parse("a + b")(object(), a=1.0)


# --- generated trees -----------------------------------------------------------------------

VARIABLE = st.sampled_from(["x", "y", "d_1"]).map(Name)
DECIMAL = st.tuples(st.integers(0, 10**20), st.integers(-40, 40)).map(lambda t: t[0] * Fraction(10) ** t[1])
DYADIC = st.tuples(st.integers(0, 2**60), st.integers(-1100, 1000)).map(lambda t: t[0] * Fraction(2) ** t[1])
LITERAL = st.one_of(DECIMAL, DYADIC).map(Number)
CONSTANT = st.sampled_from(["pi", "e", "inf", "nan"]).map(Constant)
AXIS = st.sampled_from([None, -1, 0, 1])
INDEX = st.one_of(st.integers(-9, 9), st.lists(st.integers(-9, 9), min_size=1, max_size=3).map(tuple))


@st.composite
def conditions(draw, depth):
    kind = draw(st.sampled_from(["compare", "compare", "isnan", "mask", "not", "logic"]))
    if kind == "mask":
        return Name("mask")
    if kind == "isnan":
        return Call("isnan", (draw(arrays(depth)),))
    if kind == "not" and depth:
        return Not(draw(conditions(depth - 1)))
    if kind == "logic" and depth:
        operator = draw(st.sampled_from(["and", "or"]))
        return Binary(operator, draw(conditions(depth - 1)), draw(conditions(depth - 1)))
    sides = draw(st.permutations([draw(arrays(depth)), draw(numbers(depth))]))
    return Binary(draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="])), *sides)


@st.composite
def arrays(draw, depth):
    """Trees with a variable in them."""
    if not depth:
        return draw(VARIABLE)
    below = arrays(depth - 1)
    kind = draw(st.sampled_from(["take", "cast", "along", "sum", "operator", "where"]))
    if kind == "take":
        return Take(draw(below), draw(INDEX))
    if kind == "cast":
        return Call(draw(st.sampled_from(["float16", "bfloat16"])), (draw(below),))
    if kind == "along":
        return Call(draw(st.sampled_from(["softmax", "logsumexp"])), (draw(below),), draw(st.integers(-2, 1)))
    if kind == "sum":
        return Call(draw(st.sampled_from(["sum", "max"])), (draw(below),), draw(AXIS))
    if kind == "where":
        branches = (draw(numbers(depth - 1)), draw(numbers(depth - 1)))
        return Call("where", (draw(conditions(depth - 1)), *branches))
    sides = draw(st.permutations([draw(below), draw(numbers(depth - 1))]))
    return Binary(draw(st.sampled_from(["+", "-", "*", "/"])), *sides)


@st.composite
def numbers(draw, depth):
    """Trees of any numbers, constants included."""
    if not depth:
        return draw(VARIABLE | LITERAL | CONSTANT)
    below = numbers(depth - 1)
    kind = draw(st.sampled_from(["array", "negate", "power", "operator", "one", "two", "clip"]))
    if kind == "negate":
        return Negate(draw(below))
    if kind == "power":
        return Power(draw(below), draw(st.integers(-5, 5)))
    if kind == "operator":
        return Binary(draw(st.sampled_from(["+", "-", "*", "/"])), draw(below), draw(below))
    if kind == "one":
        return Call(draw(st.sampled_from(["exp", "square", "nan_to_num"])), (draw(below),))
    if kind == "two":
        return Call(draw(st.sampled_from(["maximum", "xlogy"])), (draw(below), draw(below)))
    if kind == "clip":
        limits = draw(st.permutations([draw(below), draw(st.none() | below)]))
        return Call("clip", (draw(below), *limits))
    return draw(arrays(depth))


TREE = st.integers(0, 4).flatmap(numbers)


@settings(max_examples=400, deadline=None)
@given(TREE, TREE)
def test_a_tree_survives_its_text(first, second):
    """The text of a tree, in as few parentheses as do, parses to the tree."""
    body = Binary("+", Binary("*", Name("x"), first), Name("part"))
    text = f"part = {to_text(second)}; {to_text(body)}"
    e = parse(text)
    assert e.assignments == (("part", second),)
    assert e.body == body
    assert str(e) == text
    assert isinstance(e, Expression)


@settings(max_examples=300, deadline=None)
@given(st.one_of(DECIMAL, DYADIC))
def test_the_text_of_a_literal_is_its_value(value):
    """Literals are written without loss, and not at length."""
    text = to_text(Number(value))
    assert parse(f"{text} * x").body == Binary("*", Number(value), Name("x"))
    assert len(text) <= 60


@pytest.mark.parametrize(
    ("text", "written"),
    [("1e-8", "1e-8"), ("0.01", "0.01"), ("20.0", "20"), ("1E+3", "1000"), ("1e30", "1e30"), ("0.0", "0"),
     ("1.50e-9", "1.5e-9"), ("0x1p-149", "0x1p-149"), ("0x1.8p-3", "0.1875"), ("65504", "65504")],
)  # fmt: skip
def test_literals_are_written_as_one_would(text, written):
    """Short decimals are written in decimal, and long powers of two in hex."""
    assert str(parse(f"x * {text}")) == f"x * {written}"
