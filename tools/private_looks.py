"""Which tests look into private names? Writes tests/house/private_looks.txt, a count per file; the sum only shrinks.

.venv/bin/python -m tools.private_looks         after a test was mended, moved or split
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

TOP = Path(__file__).absolute().parents[1]
TESTS = TOP / "tests"
LIST = TESTS / "house" / "private_looks.txt"
OF_TUPLES = {"_replace", "_asdict", "_fields", "_make"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_TUPLES


def looks_in(tree: ast.AST) -> int:
    """Counts `x._y` where x is not self, `from x import _y`, and names given to setattr as text."""
    return sum(map(_looks, ast.walk(tree)))


def _looks(node: ast.AST) -> int:
    if isinstance(node, ast.Attribute) and is_private(node.attr):
        own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
        return int(not own and ast.unparse(node.value) != "super()")
    if isinstance(node, ast.ImportFrom):
        return sum(is_private(name.name) for name in node.names)
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in {"setattr", "getattr", "delattr"}:
        texts = [word.value for word in node.args[:2] if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        return sum(is_private(text.rpartition(".")[2]) for text in texts)
    return 0


def looks() -> dict[str, int]:
    """The files of tests that look, and how often."""
    counts = {
        file.relative_to(TESTS).as_posix(): looks_in(ast.parse(file.read_text(encoding="utf-8")))
        for file in sorted(TESTS.rglob("*.py"))
    }
    return {name: count for name, count in counts.items() if count}


def listed() -> dict[str, int]:
    rows = (line.split() for line in LIST.read_text(encoding="utf-8").splitlines())
    return {name: int(count) for count, name in rows}


def page(counts: dict[str, int]) -> str:
    return "".join(f"{count:3} {name}\n" for name, count in counts.items())


if __name__ == "__main__":
    found = looks()
    if LIST.exists() and sum(found.values()) > sum(listed().values()):
        sys.exit(f"tests look into private names {sum(found.values())} times, before {sum(listed().values())}")
    LIST.write_text(page(found), encoding="utf-8")
