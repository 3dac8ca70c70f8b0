"""Which names may a stranger give to a file or a program?"""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.names import CONTROL_FILES, check_cache_id, check_exec_name, check_file_name, check_file_names
from wakugumi.errors import Refused

GOOD = [
    "input.txt",
    "a/b/c.dat",
    ".hidden",
    "dir/.done",
    "result.zip",
    "with blank.txt",
    " leading blank",
    "名前/枠組み.txt",
    "…",
    "console.txt",
    "com10",
    "nul-file",
    "-rf",
    "a" * 255,
    "/".join(["a" * 200] * 5),
]

BAD = [
    "",
    "/",
    "/etc/passwd",
    "//host/share",
    "..",
    "../x",
    "a/../b",
    "a/..",
    ".",
    "./a",
    "a/./b",
    "a//b",
    "a/",
    "a\\b",
    "..\\x",
    "C:",
    "C:x",
    "c:/x",
    "file:stream",
    "nul\0l",
    "a\nb",
    "a\tb",
    "\x1b[2J",
    "\x7f",
    "\x85",
    "what?",
    "a*",
    "a<b",
    "a>b",
    'a"b',
    "a|b",
    "dot.",
    "blank ",
    "folder./x",
    "folder /x",
    "...",
    "CON",
    "con",
    "nul.txt",
    "Aux.tar.gz",
    "a/PRN",
    "COM1",
    "com9.log",
    "LPT1/x",
    "COM¹",
    "CONIN$",
    "nul .txt",
    "x" * 256,
    "é" * 128,
    "/".join(["a" * 250] * 5),
    "lone surrogate \ud800",
    ".done",
    ".DONE",
    ".stdout",
    ".stderr",
]

SAME = [
    ["a", "a"],
    ["a", "A"],
    ["dir/x", "DIR/X"],
    ["straße", "STRASSE"],
    ["e\u0301", "\u00e9"],
]

BELOW = [
    ["a", "a/b"],
    ["a/b", "a"],
    ["A", "a/b/c"],
    ["x", "a/b", "a/b/c/d"],
]


@pytest.mark.spec("W5")
@pytest.mark.parametrize("name", GOOD)
def test_an_ordinary_name_stays_as_it_is(name: str) -> None:
    assert check_file_name(name) == name


@pytest.mark.spec("W5")
@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_a_name_that_some_system_would_misread_is_refused(name: str) -> None:
    with pytest.raises(Refused) as refused:
        check_file_name(name)
    assert refused.value.code == "bad-name"


@pytest.mark.spec("W5")
@pytest.mark.parametrize("names", SAME, ids=ascii)
def test_names_that_differ_only_in_case_cannot_stand_beside_each_other(names: list[str]) -> None:
    with pytest.raises(Refused, match=r"twice|only in case"):
        check_file_names(names)


@pytest.mark.spec("W5")
@pytest.mark.parametrize("names", BELOW, ids=ascii)
def test_a_file_cannot_be_the_folder_of_another(names: list[str]) -> None:
    with pytest.raises(Refused, match="lies below"):
        check_file_names(names)


def test_names_beside_each_other_are_fine() -> None:
    check_file_names(["a", "b/a", "b/c/a", "ab", "b-a", "result.zip"])
    check_file_names([])


@pytest.mark.spec("W5")
def test_our_own_control_files_are_ours_only_at_the_top() -> None:
    for name in CONTROL_FILES:
        with pytest.raises(Refused):
            check_file_name(name)
        assert check_file_name(f"sub/{name}")


@pytest.mark.spec("W1")
@pytest.mark.parametrize("name", ["calcA", "calc-A_2.1", "枠"])
def test_a_plain_name_may_name_a_program(name: str) -> None:
    assert check_exec_name(name) == name


@pytest.mark.spec("W1")
@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "/bin/sh", "a/b", ".hidden", "a\\b", "c:x", "NUL", "a\0", "x" * 129, "dot."),
        *("calc\u3164", "calc\u200d", "\u2800"),
    ],
    ids=ascii,
)
def test_anything_else_names_none(name: str) -> None:
    with pytest.raises(Refused) as refused:
        check_exec_name(name)
    assert refused.value.code == "bad-name"


def test_a_refusal_does_not_repeat_a_name_of_any_length() -> None:
    with pytest.raises(Refused) as refused:
        check_file_name("x" * 100_000)
    assert len(refused.value.message) < 300


@pytest.mark.spec("W5")
@given(st.text(alphabet=st.sampled_from("a.. /\\:\0C~é\u202e\n-NUL"), max_size=12) | st.text(max_size=40))
def test_whatever_passes_stays_inside_the_directory(name: str) -> None:
    try:
        check_file_name(name)
    except Refused:
        return
    whole = os.path.normpath(f"/jobs/one/{name}")
    assert whole == f"/jobs/one/{name}"
    assert "\0" not in name


@pytest.mark.spec("C2")
@pytest.mark.parametrize("cache_id", ["a", "data-v1", "A.b_c-9", "x" * 128, "0"])
def test_a_cache_id_is_plain_text(cache_id: str) -> None:
    assert check_cache_id(cache_id) == cache_id


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    "cache_id", ["", ".", "..", ".blobs", "x" * 129, "a/b", "a\\b", "a b", "ä", "a\n", "a\x00", "*", "a:b"]
)
def test_a_cache_id_that_could_be_a_path_or_the_workers_own_folder_is_refused(cache_id: str) -> None:
    with pytest.raises(Refused) as no:
        check_cache_id(cache_id)
    assert no.value.code == "bad-name"
