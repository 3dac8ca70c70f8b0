"""Lists of rules: globs and patterns, denials that win, and their checks."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wakugumi.core.access.rule_lists import (
    allows_all_names,
    allows_name,
    allows_pattern,
    name_entries,
    pattern_entries,
    shown,
    with_default,
)
from wakugumi.core.subject import covers, overlaps
from wakugumi.errors import Refused
from wakugumi.limits.access import RULE_ENTRIES_MAX, RULE_ENTRY_CHARS_MAX

globs = st.text(alphabet="ab*?\\", min_size=1, max_size=8)
names = st.text(alphabet="ab\\\n", max_size=8)
few_patterns = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens, ">"])])
)
signed = st.tuples(st.sampled_from(["", "!"]), few_patterns).map("".join)


@given(globs, names)
@example("*ab*ab*", "abab")
@example("*?*b", "aab")
def test_a_glob_allows_the_names_that_the_shell_would_take(glob: str, name: str) -> None:
    assert allows_name((glob,), name) is bool(re.fullmatch(fnmatch.translate(glob), name))


@given(st.lists(globs, max_size=4), st.lists(globs, max_size=4), names)
def test_a_denial_wins(allowed: list[str], denied: list[str], name: str) -> None:
    entries = (*allowed, *(f"!{one}" for one in denied))
    assert allows_name(entries, name) is (
        any(allows_name((one,), name) for one in allowed) and not any(allows_name((one,), name) for one in denied)
    )


@given(st.lists(signed, max_size=6).map(tuple), few_patterns)
def test_a_denial_takes_each_pattern_that_overlaps(entries: tuple[str, ...], pattern: str) -> None:
    allowed = [entry for entry in entries if entry[0] != "!"]
    denied = [entry[1:] for entry in entries if entry[0] == "!"]
    assert allows_pattern(entries, pattern) is (
        covers(allowed, pattern) and not any(overlaps(one, pattern) for one in denied)
    )


def test_a_glob_of_many_stars_takes_no_time() -> None:
    assert not allows_name(("*a" * 100 + "b",), "a" * 10_000)


def test_a_list_of_denials_keeps_its_default() -> None:
    assert with_default(("!x",), ("*",)) == ("*", "!x")
    assert with_default((), ("*",)) == ("*",)
    assert with_default(("a", "!x"), ("*",)) == ("a", "!x")


@pytest.mark.parametrize(("entries", "is_all"), [(("*",), True), (("a", "*"), True), (("*", "!a"), False), ((), False)])
def test_all_names_are_a_star_without_denials(entries: tuple[str, ...], is_all: bool) -> None:
    assert allows_all_names(entries) is is_all


def test_a_list_is_shown_in_few_words() -> None:
    assert shown(("a", "b", "!c")) == "a, b but not c"
    assert shown(("!c",)) == "nothing but not c"
    assert shown(tuple("abcdefghij")) == "a, b, c, d, e, f, g, 3 more"


def test_a_bare_word_of_subjects_is_a_group() -> None:
    assert pattern_entries("subjects", ("Risk", "!hr", "a.>")) == (
        *("job.assign.risk", "job.assign.risk.>", "!job.assign.hr", "!job.assign.hr.>"),
        "a.>",
    )


@pytest.mark.parametrize("entry", ["", "!", "a\nb", "a\u202eb", "x" * (RULE_ENTRY_CHARS_MAX + 1)])
def test_an_entry_that_is_no_name_is_refused(entry: str) -> None:
    with pytest.raises(Refused) as refused:
        name_entries("clients", (entry,))
    assert refused.value.code == "bad-request"


@pytest.mark.parametrize("entry", ["", "!", "a..b", "!a b", "a*"])
def test_an_entry_that_is_no_pattern_is_refused(entry: str) -> None:
    with pytest.raises(Refused) as refused:
        pattern_entries("subjects", (entry,))
    assert refused.value.code == "bad-subject"


def test_a_list_has_a_bound() -> None:
    assert name_entries("clients", ("a",) * RULE_ENTRIES_MAX)
    for check in (name_entries, pattern_entries):
        with pytest.raises(Refused, match="65 entries of clients"):
            check("clients", ("a",) * (RULE_ENTRIES_MAX + 1))
