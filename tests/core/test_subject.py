"""Subjects and patterns: what is valid, what matches, where jobs go, and that the tree agrees with the rules.

`heard_by` says what matching means a second time, by regular expression; the code is held against it.
"""

import functools
import re
import sys
from collections.abc import Callable
from itertools import product
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.hostile_text import HOSTILE, TEXTS

from wakugumi.core import subject as subject_module
from wakugumi.core.subject import (
    PATTERN_TOKENS_PER_WORKER_MAX,
    PATTERNS_PER_WORKER_MAX,
    SUBJECT_BYTES_MAX,
    SUBJECT_TOKENS_MAX,
    Pattern,
    PatternTree,
    Subject,
    SubjectError,
    covers,
    hears,
    is_valid_pattern,
    is_valid_subject,
    kept_pattern,
    matches,
    overlaps,
    parse_pattern,
    parse_subject,
    route,
    worker_patterns,
)

SUBJECTS = ["a", "job.assign.calca", "a-b_c.$d!", "a,b", "0", "計算.価格", "x." * 100 + "x", "\u2801"]
PATTERNS_ONLY = ["*", ">", "*.*", "*.>", "a.*", "a.>", "*.a", "a.*.b.*.>"]
NEITHER = [
    *["", ".", "..", ".a", "a.", "a..b", ".*", ".>", "*.", ">."],
    *[">.a", "a.>.b", ">.>", ">.*"],
    *["a*", "*a", "a.b*", "**", "a.**", ">>", "a>", ">a", "a*b", "*>"],
    *["a b", " a", "a ", " ", "a\tb", "a\nb", "a\n", "a\r", "a.\x0b", "a\x0cb", "a\u3000b", "a\u2028b", "a\xa0b"],
    *["a\x00", "\x1f", "a\x7fb", "a\x85b", "a\x9f"],
    *["a/b", "/", "\ud800", "a.\udfffb"],
]

tokens = st.sampled_from(["a", "b", "c"])
subjects = st.lists(tokens, min_size=1, max_size=5).map(lambda found: Subject(Pattern(".".join(found))))
patterns = st.tuples(
    st.lists(st.sampled_from(["a", "b", "c", "*"]), max_size=4), st.sampled_from(["a", "b", "*", ">"])
).map(lambda found: Pattern(".".join([*found[0], found[1]])))


def heard_by(pattern: str) -> re.Pattern[str]:
    each = {"*": r"[^.]+", ">": r".+"}
    return re.compile(r"\.".join(each.get(token, re.escape(token)) for token in pattern.split(".")))


def tree_of(*patterns: str) -> PatternTree[str]:
    tree: PatternTree[str] = PatternTree()
    for pattern in patterns:
        tree[Pattern(pattern)] = pattern
    return tree


def lines_run(action: Callable[[], object]) -> int:
    """How many lines of subject.py the action runs: its cost, without a clock."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != subject_module.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    assert count
    return count


@pytest.mark.spec("S1")
@pytest.mark.parametrize("text", SUBJECTS)
def test_a_subject_is_valid_and_is_also_a_pattern(text: str) -> None:
    assert is_valid_subject(text)
    assert is_valid_pattern(text)
    assert parse_subject(text) == parse_pattern(text) == text


@pytest.mark.spec("S1")
@pytest.mark.parametrize("text", PATTERNS_ONLY)
def test_a_wildcard_makes_a_pattern_and_no_subject(text: str) -> None:
    assert is_valid_pattern(text)
    assert parse_pattern(text) == text
    assert not is_valid_subject(text)
    with pytest.raises(SubjectError):
        parse_subject(text)


@pytest.mark.spec("S1")
@pytest.mark.parametrize("text", NEITHER)
def test_bad_text_is_neither_and_matches_nothing(text: str) -> None:
    assert not is_valid_subject(text)
    assert not is_valid_pattern(text)
    assert not matches(">", text)
    assert not matches(text, "a")
    assert not matches(text, text)
    assert not overlaps(text, ">")
    assert not overlaps(">", text)
    for parse in (parse_subject, parse_pattern):
        with pytest.raises(SubjectError):
            parse(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "bad pattern '': it is empty"),
        ("a..b", "bad pattern 'a..b': token 2 is empty"),
        ("a.b\tc", r"bad pattern 'a.b\tc': token 2 holds the character U+0009, which is not allowed"),
        ("a.>.c", "bad pattern 'a.>.c': token 2 is >, which may only come last"),
        ("a.b*", "bad pattern 'a.b*': token 2 holds a wildcard, which must be a whole token"),
        ("x" * 2000, f"bad pattern '{'x' * 80}'…: 2000 bytes, at most 1024 are allowed"),
        ("x." * 200 + "x", f"bad pattern '{'x.' * 40}'…: 201 tokens, at most 128 are allowed"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(text: str, fault: str) -> None:
    with pytest.raises(SubjectError) as caught:
        parse_pattern(text)
    assert str(caught.value) == fault


def test_an_error_says_that_subjects_have_no_wildcards() -> None:
    with pytest.raises(SubjectError, match=r"^bad subject 'a\.\*': token 2 is the wildcard \*, which only a pattern"):
        parse_subject("a.*")


def hex_of(char: str) -> str:
    return f"{ord(char):x}"


UNSEEN = sorted({char for text in TEXTS.values() for char in text if HOSTILE.search(char)} | set("\n\t\u200c\u200d"))


@pytest.mark.spec("O1")
@pytest.mark.parametrize("char", UNSEEN, ids=hex_of)
def test_a_character_that_nobody_sees_is_refused_as_in_a_client_id(char: str) -> None:
    text = f"job.assign.calc{char}a"
    assert not is_valid_subject(text)
    assert not is_valid_pattern(f"{text}.>")
    with pytest.raises(SubjectError, match=f"token 3 holds the character U\\+{ord(char):04X}, which is not allowed"):
        parse_subject(text)
    with pytest.raises(SubjectError):
        worker_patterns(text)


@pytest.mark.parametrize("char", ["\u202e", "\u200b", "\u200d", "\ufeff"], ids=hex_of)
def test_what_an_earlier_version_kept_with_one_is_still_matched(char: str) -> None:
    kept = kept_pattern(f"job.assign.Calc{char}a")
    assert kept == f"job.assign.calc{char}a"
    assert matches("job.assign.>", kept)
    assert matches(kept, kept)
    assert overlaps(kept, "job.*.*")
    assert tree_of("job.assign.>").match(Subject(kept))
    with pytest.raises(SubjectError):
        kept_pattern("job..a")


@given(st.text(alphabet="aB.*>/ \n\x00é\ud800\u202e", max_size=12))
def test_parsing_refuses_exactly_what_is_not_valid_and_can_always_say_why(text: str) -> None:
    for is_valid, parse in ((is_valid_subject, parse_subject), (is_valid_pattern, parse_pattern)):
        try:
            assert parse(text)
            assert is_valid(text)
        except SubjectError:
            assert not is_valid(text)


def test_length_is_bounded_in_bytes_and_in_tokens() -> None:
    assert is_valid_subject("x" * SUBJECT_BYTES_MAX)
    assert not is_valid_subject("x" * (SUBJECT_BYTES_MAX + 1))
    assert is_valid_subject("é" * (SUBJECT_BYTES_MAX // 2))
    assert not is_valid_subject("é" * (SUBJECT_BYTES_MAX // 2) + "x")
    assert is_valid_pattern(".".join("*" * SUBJECT_TOKENS_MAX))
    assert not is_valid_pattern(".".join("*" * (SUBJECT_TOKENS_MAX + 1)))


@pytest.mark.spec("S1")
def test_only_ascii_case_is_folded() -> None:
    assert parse_subject("Job.ASSIGN.CalcA") == "job.assign.calca"
    assert parse_pattern("Job.*.É.K\u212a.>") == "job.*.É.k\u212a.>"
    assert matches("JOB.*.calcA", "job.Assign.CALCa")
    assert not matches("k", "\u212a")
    assert not matches("é", "É")
    assert not matches("i", "\u0130")
    assert overlaps("A.*", "*.B")


@pytest.mark.spec("S1")
@pytest.mark.parametrize(
    ("pattern", "heard", "unheard"),
    [
        ("a", ["a"], ["b", "a.a", "aa"]),
        ("a.b", ["a.b"], ["a", "b", "a.c", "a.b.c", "b.a"]),
        ("*", ["a", "xyz"], ["a.b"]),
        ("a.*", ["a.b", "a.a"], ["a", "a.b.c", "b.a"]),
        ("*.b", ["a.b", "b.b"], ["b", "a.c", "a.b.b"]),
        ("a.*.c", ["a.b.c"], ["a.c", "a.b.b.c", "a.b.d"]),
        (">", ["a", "a.b", "a.b.c.d"], []),
        ("a.>", ["a.b", "a.b.c"], ["a", "b", "b.a", "aa.b"]),
        ("*.>", ["a.b", "a.b.c"], ["a"]),
        ("a.*.>", ["a.b.c", "a.b.c.d"], ["a", "a.b", "b.b.c"]),
        ("job.assign.a.*", ["job.assign.a.1"], ["job.assign.a", "job.assign.b.1", "job.assign.a.1.task"]),
    ],
)
def test_a_pattern_matches_what_it_says(pattern: str, heard: list[str], unheard: list[str]) -> None:
    assert [each for each in heard + unheard if matches(pattern, each)] == heard


def test_a_pattern_is_no_subject_to_be_matched() -> None:
    assert not matches(">", "a.*")
    assert not matches("a.*", "a.*")
    assert not matches("a.>", "a.>")


@given(patterns, subjects)
def test_matching_agrees_with_its_definition(pattern: Pattern, subject: Subject) -> None:
    assert matches(pattern, subject) is bool(heard_by(pattern).fullmatch(subject))
    assert matches(pattern.upper(), subject) is matches(pattern, subject.upper()) is matches(pattern, subject)


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("job.assign.*", "job.assign.>", True),
        ("job.assign.calca", "job.assign.*", True),
        ("a.*", "*.b", True),
        ("a.>", "*.b.c", True),
        ("a.*.>", "a.b", False),
        ("a", "a.>", False),
        ("a.*", "a.*.*", False),
        ("a.b.*", "a.c.>", False),
        ("*.>", "*", False),
        (">", "*", True),
    ],
)
def test_patterns_overlap_when_a_subject_could_be_heard_by_both(a: str, b: str, expected: bool) -> None:
    assert overlaps(a, b) is overlaps(b, a) is expected


@pytest.mark.spec("S2")
def test_overlap_is_exact_for_every_pair_of_short_patterns() -> None:
    short = [".".join(each) for length in (1, 2, 3) for each in product("ab*", repeat=length)]
    short += [f"{each}.>" for each in short if each.count(".") < 2] + [">"]
    # `c` stands for every token that no pattern names; four tokens are one more than the longest pattern has.
    every = [".".join(each) for length in (1, 2, 3, 4) for each in product("abc", repeat=length)]
    heard = {pattern: {each for each in every if heard_by(pattern).fullmatch(each)} for pattern in short}
    for a, b in product(short, repeat=2):
        assert overlaps(a, b) is bool(heard[a] & heard[b]), (a, b)


@pytest.mark.spec("F8")
@pytest.mark.parametrize(
    ("submitted", "exec_name", "expected"),
    [
        ("job.submit.calcA", "x", "job.assign.calca"),
        ("job.submit.groupA.fast", "x", "job.assign.groupa.fast"),
        ("JOB.Submit.A", "x", "job.assign.a"),
        ("job.assign.A.1", "x", "job.assign.a.1"),
        ("Job.Assign.A", "x", "job.assign.a"),
        ("groupA", "x", "job.assign.groupa"),
        ("groupA.fast", "x", "job.assign.groupa.fast"),
        ("job", "x", "job.assign.job"),
        ("job.submit.job.submit.a", "x", "job.assign.job.submit.a"),
        ("", "calcA", "job.assign.calca"),
        ("", "Price_1-b", "job.assign.price_1-b"),
        ("", "calc.v2 (new)/*>é", "job.assign.calc_v2__new_____"),
        ("", "...", "job.assign.___"),
        ("", "", "job.assign.default"),
        ("calcA", "", "job.assign.calca"),
    ],
)
def test_a_submit_is_routed(submitted: str, exec_name: str, expected: str) -> None:
    assert route(submitted, exec_name) == expected


@pytest.mark.spec("F8")
@pytest.mark.parametrize(
    "submitted",
    ["job.submit", "JOB.assign", "job.submit.", "job.assign.", "job.submit.*", "job.assign.>", "*", " ", "a b", "a..b"],
)
def test_a_submit_that_names_no_route_is_refused(submitted: str) -> None:
    with pytest.raises(SubjectError):
        route(submitted, "calcA")


def test_a_route_that_grows_too_long_is_refused() -> None:
    for submitted, exec_name in [("x" * SUBJECT_BYTES_MAX, ""), ("", "x" * SUBJECT_BYTES_MAX)]:
        with pytest.raises(SubjectError, match="bytes, at most"):
            route(submitted, exec_name)


@pytest.mark.spec("F5")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["job.assign.>"]),
        (" , ", ["job.assign.>"]),
        ("job.assign.*", ["job.assign.*"]),
        ("groupA", ["job.assign.groupa", "job.assign.groupa.>"]),
        ("a b", ["job.assign.a", "job.assign.a.>", "job.assign.b", "job.assign.b.>"]),
        (" job.assign.B.>,, job.assign.common.> ", ["job.assign.b.>", "job.assign.common.>"]),
        ("A job.assign.a.> a", ["job.assign.a", "job.assign.a.>"]),
        (">", [">"]),
        ("*", ["*"]),
        ("cache.x", ["cache.x"]),
    ],
)
def test_a_hello_names_patterns(text: str, expected: list[str]) -> None:
    assert list(worker_patterns(text)) == expected


@pytest.mark.spec("S4")
@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("calcA", "Box-7", ["job.assign.calca", "job.assign.calca.>", "job.assign.calca.box-7"]),
        ("job.assign.a", "w", ["job.assign.a", "job.assign.a.w"]),
        (
            "job.assign.a.> job.assign.b.*",
            "w",
            ["job.assign.a.>", "job.assign.b.*", "job.assign.a.w", "job.assign.b.w"],
        ),
        ("job.assign.a.x.y", "w", ["job.assign.a.x.y", "job.assign.a.w"]),
        ("job.assign.a.w", "w", ["job.assign.a.w"]),
        ("*.assign.a", "w", ["*.assign.a", "job.assign.a.w"]),
        ("", "w", ["job.assign.>", "job.assign.*.w"]),
        ("job.assign.*", "w", ["job.assign.*", "job.assign.*.w"]),
        ("job.>", "w", ["job.>", "job.assign.*.w"]),
        (">", "w", [">", "job.assign.*.w"]),
        ("job.assign job.* *.* cache.x", "w", ["job.assign", "job.*", "*.*", "cache.x"]),
        ("job.assign.a", "rack 1.box/7", ["job.assign.a", "job.assign.a.rack_1_box_7"]),
        ("job.assign.a", "*", ["job.assign.a", "job.assign.a._"]),
    ],
)
def test_a_named_worker_also_hears_its_own_address(text: str, name: str, expected: list[str]) -> None:
    assert list(worker_patterns(text, name)) == expected


@pytest.mark.spec("F5")
@pytest.mark.parametrize("text", ["a..b", "job.assign.a job.>.b", "a*", "a\tb", "ok,a/b"])
def test_a_hello_with_one_bad_pattern_is_refused(text: str) -> None:
    with pytest.raises(SubjectError, match="bad pattern"):
        worker_patterns(text)


def test_a_worker_has_a_bounded_number_of_patterns() -> None:
    most = [f"job.assign.a.{number}" for number in range(PATTERNS_PER_WORKER_MAX)]
    assert len(worker_patterns(",".join(most))) == PATTERNS_PER_WORKER_MAX
    for text, name in [(",".join([*most, "job.assign.b"]), ""), (",".join(most), "w")]:
        with pytest.raises(SubjectError, match=f"{PATTERNS_PER_WORKER_MAX + 1} patterns: a worker may have"):
            worker_patterns(text, name)


def test_a_hello_of_too_many_words_is_refused_before_it_is_read() -> None:
    def refused() -> None:
        with pytest.raises(SubjectError, match="32000 patterns"):
            worker_patterns("a," * 32_000)

    # Telling the words apart is one line for each; parsing them would be ten.
    assert lines_run(refused) < 2 * 32_000


@pytest.mark.spec("S3")
def test_a_tree_holds_a_value_for_each_pattern() -> None:
    tree: PatternTree[int | None] = PatternTree()
    assert len(tree) == 0
    tree[Pattern("a.*")] = 1
    tree[Pattern("a.>")] = None
    tree[Pattern("a.*")] = 2
    assert len(tree) == 2
    assert set(tree) == {"a.*", "a.>"}
    assert tree[Pattern("a.*")] == tree.get(Pattern("a.*")) == 2
    assert tree[Pattern("a.>")] is None
    assert Pattern("a.>") in tree
    for absent in map(Pattern, ["a", "a.b", "*", ">", "a.*.*", "b.c.d"]):
        assert absent not in tree
        assert tree.get(absent) is None
        with pytest.raises(KeyError):
            tree[absent]
        with pytest.raises(KeyError):
            del tree[absent]
    assert len(tree) == 2
    tree.check()


@pytest.mark.spec("S4")
def test_one_pattern_that_goes_leaves_the_others() -> None:
    tree = tree_of("job.assign.a", "job.assign.a.>", "job.assign.b", "job.assign.b.>")
    del tree[Pattern("job.assign.a")]
    del tree[Pattern("job.assign.a.>")]
    assert tree.match(parse_subject("job.assign.a")) == []
    assert tree.match(parse_subject("job.assign.b")) == ["job.assign.b"]
    assert tree.match(parse_subject("job.assign.b.c")) == ["job.assign.b.>"]
    tree.check()


@pytest.mark.spec("S3")
@pytest.mark.parametrize(
    ("allowed", "pattern", "is_covered"),
    [
        ("job.assign.risk.>", "job.assign.risk.var", True),
        ("job.assign.risk.>", "job.assign.risk.*", True),
        ("job.assign.risk.>", "job.assign.risk.*.>", True),
        ("job.assign.risk.>", "job.assign.risk", False),
        ("job.assign.risk.>", "job.assign.*.var", False),
        ("job.assign.risk.>", "job.assign.>", False),
        ("job.assign.risk.*", "job.assign.risk.>", False),
        ("job.*.risk", "JOB.assign.Risk", True),
        (">", ">", True),
        ("*", ">", False),
        ("*.>", ">", False),
        (["*", "*.>"], ">", True),
        (["*", "*.*", "*.*.>"], ">", True),
        (["*", "*.*.>"], ">", False),
        (["a.>", "b.>"], "*.>", False),
        (["a.b", "a.*"], "a.c", True),
        ([], "a", False),
        ("a..b", "a..b", False),
        (">", "a..b", False),
        (">", "", False),
    ],
)
def test_a_pattern_is_covered_if_each_of_its_subjects_is_allowed(
    allowed: str | list[str], pattern: str, is_covered: bool
) -> None:
    assert covers(allowed, pattern) is is_covered


SHORT = [".".join(found) for length in range(1, 6) for found in product("abz", repeat=length)]
"""All subjects of up to five tokens. Patterns of the next test have at most four, and none of them names `z`."""
few_patterns = st.tuples(
    st.lists(st.sampled_from(["a", "b", "*"]), max_size=3), st.sampled_from(["a", "b", "*", ">"])
).map(lambda found: ".".join([*found[0], found[1]]))


@functools.cache
def short_subjects_of(pattern: str) -> frozenset[str]:
    return frozenset(filter(heard_by(pattern).fullmatch, SHORT))


@given(st.lists(few_patterns, max_size=6), few_patterns)
def test_covering_is_as_if_every_subject_was_tried(allowed: list[str], pattern: str) -> None:
    reached = frozenset[str]().union(*map(short_subjects_of, allowed))
    assert covers(allowed, pattern) is (short_subjects_of(pattern) <= reached)
    for one in allowed:
        assert covers(one, pattern) is (short_subjects_of(pattern) <= short_subjects_of(one))


@given(patterns, patterns)
def test_a_covered_pattern_overlaps(allowed: Pattern, pattern: Pattern) -> None:
    if covers(allowed, pattern):
        assert overlaps(allowed, pattern)
    assert covers(pattern, pattern)


@given(st.lists(patterns, max_size=30), subjects)
def test_a_tree_finds_each_matching_pattern_once(stored: list[Pattern], subject: Subject) -> None:
    tree = tree_of(*stored)
    assert sorted(tree.match(subject)) == sorted(each for each in set(stored) if heard_by(each).fullmatch(subject))
    assert tree_of(*reversed(stored)).match(subject) == tree.match(subject)
    assert hears(stored, subject) == bool(tree.match(subject))
    tree.check()


@pytest.mark.spec("S2", "S3")
@given(st.lists(patterns | subjects, max_size=30), patterns)
def test_a_tree_finds_each_overlapping_pattern_once(stored: list[Pattern], pattern: Pattern) -> None:
    found = tree_of(*stored).overlapping(pattern)
    assert sorted(found) == sorted(each for each in set(stored) if overlaps(each, pattern))


@given(st.lists(st.tuples(st.booleans(), patterns), max_size=60))
def test_a_tree_is_as_if_what_was_removed_had_never_been_there(changes: list[tuple[bool, Pattern]]) -> None:
    tree = tree_of()
    model: dict[Pattern, str] = {}
    for add, pattern in changes:
        if add:
            tree[pattern] = model[pattern] = pattern
        elif pattern in model:
            del tree[pattern], model[pattern]
        # No branch is without a pattern: so equal patterns make equal trees.
        tree.check()
        assert len(tree) == len(model)
        assert sorted(tree) == sorted(model)


@pytest.mark.spec("S3")
def test_no_question_costs_more_because_other_patterns_are_stored() -> None:
    def costs(others: int) -> list[int]:
        tree = tree_of("job.assign.*", "job.assign.a.>", "job.*.a.b", *(f"job.assign.x{n}.y{n}" for n in range(others)))
        for number in range(others):
            tree[Pattern(f"job.assign.*.z{number}")] = "z"
        new = Pattern("job.assign.new.*.deep")
        return [
            lines_run(lambda: tree.match(parse_subject("job.assign.a.b"))),
            lines_run(lambda: tree.overlapping(Pattern("job.assign.a.b"))),
            lines_run(lambda: tree.__setitem__(new, "new")),
            lines_run(lambda: tree.__delitem__(new)),
        ]

    assert costs(10) == costs(10_000)


@pytest.mark.spec("S3")
def test_patterns_made_to_fork_cost_a_match_no_more_than_the_nodes_they_made() -> None:
    # Every prefix of a.a.a… agrees with every node, and not one pattern ends as the subject does.
    tree = tree_of(*(".".join([*each, "z"]) for each in product("a*", repeat=11)))
    nodes = 2**12 - 1
    subject = parse_subject(".".join("a" * 12))
    assert tree.match(subject) == []
    assert lines_run(lambda: tree.match(subject)) <= 10 * nodes
    assert lines_run(lambda: tree.overlapping(Pattern(".".join("*" * 11 + "y")))) <= 15 * nodes


@pytest.mark.spec("S3")
def test_the_deepest_patterns_are_walked_without_recursion() -> None:
    stars = [".".join("*" * depth) for depth in range(1, SUBJECT_TOKENS_MAX + 1)]
    rests = [f"{each}.>" for each in stars[:-1]] + [">"]
    tree = tree_of(*stars, *rests)
    deepest = parse_subject(".".join("a" * SUBJECT_TOKENS_MAX))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len_of_stack() + 20)
    try:
        assert len(tree.match(deepest)) == len(rests) + 1
        assert len(tree.overlapping(Pattern(">"))) == len(tree) == len(stars) + len(rests)
        tree.check()
        for pattern in [*stars, *rests]:
            del tree[Pattern(pattern)]
    finally:
        sys.setrecursionlimit(limit)
    tree.check()
    assert list(tree) == []


def len_of_stack() -> int:
    frame: FrameType | None = sys._getframe()
    depth = 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


@pytest.mark.spec("O6")
def test_all_patterns_of_a_worker_have_a_bounded_number_of_tokens() -> None:
    deep = [".".join(["a"] * 126 + [str(at)]) for at in range(108)]
    with pytest.raises(SubjectError, match=r"108 patterns of 1\d{4} tokens: a worker may have 2048 in all"):
        worker_patterns(" ".join(deep))
    assert len(worker_patterns(deep[0])) == 1, "one deep pattern is fine"
    names = [f"program{at}" for at in range(PATTERNS_PER_WORKER_MAX // 3)]
    patterns = worker_patterns(" ".join(names), "machine-17")
    assert len(patterns) == 3 * len(names), "and so are as many programs as a worker may have"
    assert sum(pattern.count(".") + 1 for pattern in patterns) < PATTERN_TOKENS_PER_WORKER_MAX
    long = [f"job.assign.{at}{'x' * 1_000}" for at in range(100)]
    with pytest.raises(SubjectError, match="32 characters count as one more"):
        worker_patterns(" ".join(long))
