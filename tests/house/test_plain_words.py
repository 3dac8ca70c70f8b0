"""Do docstrings, comments and documents keep the mechanical half of docs/internals/style.md?

A room is a folder of a floor with all below it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
SOURCE = TOP / "src" / "wakugumi"
INTERNALS = TOP / "docs" / "internals"
QUOTES = {INTERNALS / "style.md", INTERNALS / "moved.md", INTERNALS / "modules.md", *(INTERNALS / "modules").iterdir()}
"""Pages of examples, of old names, and of docstrings: the source of these is read by itself."""
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").rglob("*.md"))]
OPENING = re.compile(r"(?:^|[.:;!?]\s+)(Who|Whoever|Whatever|Those|Nobody|Nothing|What)\b(?![^.?]{0,90}\?)")
UNSAID = re.compile(r"\b[Nn]othing (else )?(is|was) said\b|\b[Uu]nless told otherwise\b")
PEOPLE = re.compile(r"\b([Ww]hoever|[Nn]obody(?!\)))\b")
LEANS = re.compile(r"(The same|Those of|Of these|Of those|And how)\b")


def prose(text: str) -> Iterator[tuple[int, str, bool]]:
    """Line, text, and whether it stands below an attribute."""
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for at, below in enumerate(body if isinstance(body, list) else ()):
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                said = below.value.value
                if isinstance(said, str):
                    above = body[at - 1] if body and at else None
                    yield below.lineno, " ".join(said.split()), isinstance(above, ast.Assign | ast.AnnAssign)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# "), False


def faults(text: str) -> Iterator[tuple[int, str]]:
    """Line and kind of each fault: a sentence that opens badly, a default without a number, or a docstring of an
    attribute that leans on a neighbour."""
    for line, said, is_below_attribute in prose(text):
        for _ in OPENING.finditer(said):
            yield line, "opening"
        for _ in UNSAID.finditer(said):
            yield line, "unsaid"
        if is_below_attribute and LEANS.match(said):
            yield line, "leaning"


def room_of(path: Path) -> str:
    """`core/leader` for all below it; `core` for the files beside the rooms; `.` for those at the top."""
    return "/".join(path.relative_to(SOURCE).parts[:-1][:2]) or "."


FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted({room_of(path) for path in FILES})


def found_in(room: str) -> list[str]:
    """Kind and place of each fault."""
    return [
        f"{kind}: src/wakugumi/{path.relative_to(SOURCE)}:{line}"
        for path in FILES
        if room_of(path) == room
        for line, kind in faults(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_sentences_of_a_room_are_plain(room: str) -> None:
    found = found_in(room)
    assert not found, "\n".join(["docs/internals/style.md has the rules", *found])


@pytest.mark.parametrize("page", [page for page in PAGES if page not in QUOTES], ids=lambda page: page.name)
def test_sentences_of_a_document_are_plain(page: Path) -> None:
    assert list(page_faults(page.read_text(encoding="utf-8"))) == []


def page_faults(text: str) -> Iterator[str]:
    """Sentences of paragraphs, list items and cells of tables that open badly, or name a default without its value."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    cells = re.split(r"\n\s*\n|\n\s*- |\n#+ |\n?\|", prose)
    for said in (re.sub(r"[*_`]|\s+", " ", cell).strip() for cell in cells):
        for fault in (*OPENING.finditer(said), *UNSAID.finditer(said), *PEOPLE.finditer(said)):
            yield said[max(0, fault.start() - 20) : fault.end() + 60]


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [
        ("Who asks again is answered.", False),
        ("A job waits. What is left goes on.", False),
        ("- a list\n- Nobody is asked.", False),
        ("| a | whoever waits |\n", False),
        ("What is a job? A run of a program.", True),
        ("```text\nWho asks is answered.\n```", True),
        ("A repeated request replaces the caller.", True),
    ],
)
def test_a_fault_of_a_document_is_found(text: str, is_plain: bool) -> None:
    assert (list(page_faults(text)) == []) is is_plain


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ('"""Who asks again is answered."""', ["opening"]),
        ('"""Which job runs? What is left of it waits."""', ["opening"]),
        ('"""What does a worker do? It runs jobs."""', []),
        ("x = 1  # Nothing is said here.", ["opening", "unsaid"]),
        ('a = 4\n"""The same for workers."""', ["leaning"]),
        ('a = 4\n"""Slots, unless told otherwise."""', ["unsaid"]),
        ('def f():\n    """The same value, doubled."""', []),
        ('a = 4\n"""Number of slots."""', []),
    ],
)
def test_a_fault_is_found(text: str, kinds: list[str]) -> None:
    assert [kind for _, kind in faults(text)] == kinds
