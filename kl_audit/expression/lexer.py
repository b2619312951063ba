"""From text to tokens, and the error that shows where a text went wrong.

Literals are kept exactly, as fractions; brackets are matched here, so that a newline outside them can
separate statements and one inside them is a space.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

from kl_audit.errors import UsageError

#: Longest text that is read.
MAX_LENGTH = 10_000
#: Most digits of one literal, and the largest decimal exponent of its value.
MAX_DIGITS, MAX_DECADE = 1_000, 1_200
#: Columns of the text that an error shows.
COLUMNS = 100

_WORD_OPERATORS = frozenset({"and", "or", "not"})
_RESERVED = frozenset(keyword.kwlist) - _WORD_OPERATORS - {"None", "True", "False"}
_OPENING = {"(": ")", "[": "]"}

_SPACE = re.compile(r"[ \t\r\f\v]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r"\*\*|<=|>=|==|!=|[-+*/^&|~<>=()\[\],.;]")
_HEX = re.compile(r"0[xX]([0-9a-fA-F]*)(?:\.([0-9a-fA-F]*))?(?:[pP]([+-]?[0-9]+))?")
_DECIMAL = re.compile(r"(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?")
_RUN_ON = re.compile(r"[A-Za-z0-9_.]*")

_INSTEAD = {
    "!": "'not', '~' or '!='",
    ":": "integer indices such as x[3] (there are no slices)",
    "{": "'('",
    "}": "')'",
    "%": "one of + - * /",
    "@": "sum(a * b, axis=-1)",
    "#": "a formula (there are no comments)",
    "\u2212": "'-'",
    "\u00d7": "'*'",
}
_KEYWORD_INSTEAD = {
    "if": "where(condition, a, b)",
    "else": "where(condition, a, b)",
    "lambda": "the formula alone, such as exp(d) - d - 1",
    "return": "the final expression alone",
}


class ExpressionError(UsageError):
    """A formula cannot be read: three lines, the reason, the text, and a caret under the place."""

    def __init__(self, problem: str, expected: str, text: str, position: int) -> None:
        super().__init__(problem, expected, text, position)
        self.problem = problem  #: what is wrong
        self.expected = expected  #: what would be right
        self.text = text  #: the whole text
        self.position = max(0, min(position, len(text) - 1))  #: the character it points at

    def __str__(self) -> str:
        shown, column = _window(self.text, self.position)
        return f"expression: {self.problem}, expected {self.expected}\n{shown}\n{' ' * column}^"


def _window(text: str, position: int) -> tuple[str, int]:
    """Return at most COLUMNS characters around a position, one column each, and its column."""
    start = max(0, min(position - COLUMNS // 2, len(text) - COLUMNS))
    stop = min(len(text), start + COLUMNS)
    shown = [_one_column(c) for c in text[start:stop]]
    if start > 0:
        shown[:3] = "..."
    if stop < len(text):
        shown[-3:] = "..."
    return "".join(shown), position - start


def _one_column(character: str) -> str:
    """Characters outside ASCII may take no column or two, so they are shown as '?'."""
    if character.isspace():
        return " "
    return character if " " <= character <= "~" else "?"


def brief(name: str) -> str:
    """Quote a name, shortened where it is long."""
    return f"'{name}'" if len(name) <= 40 else f"'{name[:37]}...'"


@dataclass(frozen=True)
class Token:
    """A piece of the text."""

    kind: str  #: ``number``, ``name``, ``op`` or ``end``
    text: str  #: as written; a newline that separates reads ``;``
    position: int  #: of its first character
    value: Fraction = Fraction(0)  #: of a number


def tokenise(text: str) -> list[Token]:
    """Return the tokens, the last of kind ``end``; raises ExpressionError."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"the text has {len(text):,} characters", f"at most {MAX_LENGTH:,}", text, MAX_LENGTH
        )
    tokens: list[Token] = []
    opened: list[Token] = []
    position = 0
    while position < len(text):
        space = _SPACE.match(text, position)
        if space:
            position = space.end()
            continue
        if text[position] == "\n":
            if not opened:
                tokens.append(Token("op", ";", position))
            position += 1
            continue
        token, position = _next_token(text, position)
        _match_brackets(token, opened, text)
        tokens.append(token)
    if opened:
        bracket = opened[-1]
        raise ExpressionError(
            f"'{bracket.text}' is never closed", f"'{_OPENING[bracket.text]}'", text, bracket.position
        )
    return [*tokens, Token("end", "", len(text))]


def _match_brackets(token: Token, opened: list[Token], text: str) -> None:
    """Keep the open brackets; raises ExpressionError where one closes that was not opened."""
    if token.kind != "op" or token.text not in "()[]":
        return
    if token.text in _OPENING:
        opened.append(token)
    elif not opened:
        raise ExpressionError(
            f"'{token.text}' closes nothing", "an opening bracket before it", text, token.position
        )
    elif _OPENING[opened[-1].text] != token.text:
        raise ExpressionError(
            f"'{token.text}' closes '{opened[-1].text}'",
            f"'{_OPENING[opened[-1].text]}'", text, token.position,
        )  # fmt: skip
    else:
        opened.pop()


def _next_token(text: str, position: int) -> tuple[Token, int]:
    number = _HEX.match(text, position) or _DECIMAL.match(text, position)
    if number:
        return _number(text, position, number)
    name = _NAME.match(text, position)
    if name:
        return _name(text, position, name.group()), name.end()
    operator = _OPERATOR.match(text, position)
    if operator:
        return Token("op", operator.group(), position), operator.end()
    character = text[position]
    if character in "\"'`":
        raise ExpressionError("a string literal", "a number or a name", text, position)
    shown = f"'{character}' " if character.isprintable() and not unicodedata.combining(character) else ""
    raise ExpressionError(
        f"unknown character {shown}(U+{ord(character):04X})",
        _INSTEAD.get(character, "a number, a name, an operator or a bracket"), text, position,
    )  # fmt: skip


def _name(text: str, position: int, name: str) -> Token:
    if name in _WORD_OPERATORS:
        return Token("op", name, position)
    if name in _RESERVED:
        instead = _KEYWORD_INSTEAD.get(name, "a formula (statements are not read)")
        raise ExpressionError(f"'{name}' is a keyword of Python", instead, text, position)
    if name.startswith("__"):
        raise ExpressionError(f"the name {brief(name)} is refused", "a name without '__'", text, position)
    return Token("name", name, position)


def _number(text: str, position: int, match: re.Match[str]) -> tuple[Token, int]:
    """Read a literal exactly; raises ExpressionError for a malformed or an outlandish one."""
    run_on = _RUN_ON.match(text, match.end())
    stop = run_on.end() if run_on else match.end()
    written = text[position:stop]
    is_hex = match.re is _HEX
    whole, fraction, exponent = _parts(match)
    if stop != match.end() or not whole + fraction:
        expected = "a literal such as 0.5, 1e-8 or 0x1.8p-3"
        if not is_hex and re.fullmatch(r"[0-9]+(?![eE][0-9]*$)[A-Za-z_][A-Za-z_0-9]*", written):
            expected = "an operator between a number and a name, such as 2 * x"
        raise ExpressionError(f"malformed number {brief(written)}", expected, text, position)
    value = Fraction(0)
    fits = len(whole + fraction) <= MAX_DIGITS and len(exponent) <= 6 and abs(int(exponent)) <= 10_000
    if fits:
        base, scale, per_digit = (16, 2, 4) if is_hex else (10, 10, 1)
        power = int(exponent) - per_digit * len(fraction)
        value = int(whole + fraction, base) * Fraction(scale) ** power
        fits = value == 0 or Fraction(10) ** -MAX_DECADE <= value <= 10**MAX_DECADE
    if not fits:
        raise ExpressionError(
            f"the number {brief(written)} is outlandish",
            f"at most {MAX_DIGITS:,} digits and a value between 1e-{MAX_DECADE} and 1e{MAX_DECADE}",
            text, position,
        )  # fmt: skip
    return Token("number", written, position, value), stop


def _parts(match: re.Match[str]) -> tuple[str, str, str]:
    """Return the digits before and after the point, and the exponent."""
    groups = [g or "" for g in match.groups()]
    if match.re is _HEX:
        return groups[0], groups[1], groups[2] or "0"
    return groups[0], groups[1] or groups[2], groups[3] or "0"
