"""Cases by id, alias, kind and word."""

from __future__ import annotations

import pytest
from cases.helpers import HEAD, PART, case_of

from kl_audit.cases.find import choose, find_case, find_kind, search
from kl_audit.cases.model import KINDS
from kl_audit.errors import UsageError


def named(case_id, source, kind="cancellation near zero"):
    head = HEAD.replace("repo-1", case_id).replace("cancellation near zero", kind)
    return case_of(PART, head.replace("https://github.com/owner/repo/issues/1", source))


CASES = (
    named("a-7", "https://github.com/one/a/pull/7"),
    named("b-7", "https://github.com/two/B/issues/7", "compilers"),
    named("c-8", "https://github.com/three/c/issues/8"),
    named("note", "a note"),
)


@pytest.mark.parametrize(
    "name", ["c-8", "C-8", "issue-8", "8", "#8", "pr-8", "three/c#8", "c#8", CASES[2].source]
)
def test_a_case_is_found_by_any_of_its_names(name):
    """Repository and number, with or without their owner, or the address."""
    assert find_case(name, CASES).id == "c-8"


def test_an_ambiguous_alias_lists_its_candidates():
    """And asks for one."""
    with pytest.raises(UsageError, match="'issue-7' may be any of a-7, b-7; name one"):
        find_case("issue-7", CASES)
    assert find_case("two/b#7", CASES).id == "b-7"


def test_an_unknown_case_is_told_what_is_near():
    """Or how to see all."""
    with pytest.raises(UsageError, match=r"no case 'c-88' among 4. Did you mean "):
        find_case("c-88", CASES)
    with pytest.raises(UsageError, match="kl-audit cases lists all"):
        find_case("zzzzzz", CASES)


def test_cases_are_chosen_once_and_by_kind():
    """In the order asked for; all is every one."""
    assert [c.id for c in choose(["note", "8", "c-8"], [], CASES)] == ["note", "c-8"]
    assert [c.id for c in choose(["all"], ["compilers"], CASES)] == ["b-7"]
    with pytest.raises(UsageError, match="none of these cases is of the kind compilers"):
        choose(["note"], ["compilers"], CASES)


def test_a_kind_is_found_by_words_of_it():
    """An ambiguous or unknown one lists what there is."""
    assert find_kind("overflow", KINDS) == "overflow, inf and NaN"
    assert find_kind("tail mass", KINDS) == "log-softmax, tail mass"
    with pytest.raises(UsageError, match="may be any of"):
        find_kind("and", KINDS)
    with pytest.raises(UsageError, match=r"unknown kind 'zzz'. Known: "):
        find_kind("zzz", KINDS)


def test_every_word_has_to_be_in_a_case():
    """In any of its texts."""
    assert [c.id for c in search(["compilers"], CASES)] == ["b-7"]
    assert [c.id for c in search(["EXP(D)", "one/a"], CASES)] == ["a-7"]
    assert search(["exp(d)", "nowhere"], CASES) == []
