"""What is not yet right in the tests? Writes the lists of tests/house, which only shrink: looks into private names, a
count per file, and modules without a test file of their name.

.venv/bin/python -m tools.test_lists            after a test was mended, moved or split
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).absolute().parents[1]
TESTS = TOP / "tests"
PACKAGE = TOP / "src" / "wakugumi"
LOOKS = TESTS / "house" / "private_looks.txt"
UNTESTED = TESTS / "house" / "modules_without_tests.txt"
OF_TUPLES = {"_replace", "_asdict", "_fields", "_make"}


class Facts(NamedTuple):
    """Of one file of tests."""

    looks: int
    takes_from_a_test: bool


@cache
def facts() -> dict[str, Facts]:
    """By path. Each file is parsed once, and its tree let go: all of them are much memory."""
    found = {}
    for file in sorted(TESTS.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        found[file.relative_to(TESTS).as_posix()] = Facts(looks_in(tree), takes_from_a_test(tree))
    return found


def takes_from_a_test(tree: ast.AST) -> bool:
    names = [name for node in ast.walk(tree) for name in _imported(node) if name.startswith("tests.")]
    return any(part.startswith("test_") for name in names for part in name.split("."))


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{name.name}" for name in node.names]
    return [name.name for name in node.names] if isinstance(node, ast.Import) else []


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_TUPLES


def looks_in(tree: ast.AST) -> int:
    """Counts `x._y` where x is not self, `from x import _y`, and names given to setattr as text."""
    return sum(map(_looks, ast.walk(tree)))


def _looks(node: ast.AST) -> int:
    if isinstance(node, ast.Attribute):
        return int(is_private(node.attr) and not _is_own(node.value))
    if isinstance(node, ast.ImportFrom):
        return sum(is_private(name.name) for name in node.names)
    if isinstance(node, ast.Call) and _name_of(node.func) in {"setattr", "getattr", "delattr"}:
        texts = [word.value for word in node.args[:2] if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        return sum(is_private(text.rpartition(".")[2]) for text in texts)
    return 0


def _is_own(value: ast.expr) -> bool:
    return _name_of(value) in {"self", "cls"} or (isinstance(value, ast.Call) and _name_of(value.func) == "super")


def _name_of(value: ast.expr) -> str:
    return value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""


def looks() -> dict[str, int]:
    """The files of tests that look, and how often."""
    return {name: fact.looks for name, fact in facts().items() if fact.looks}


def untested() -> list[str]:
    """Modules that do something, and have no test file of their name in the mirrored folder."""
    files = [file.relative_to(PACKAGE) for file in sorted(PACKAGE.rglob("*.py"))]
    return [
        file.as_posix()
        for file in files
        if not (TESTS / file.parent / f"test_{file.name}").exists()
        and does_something(ast.parse((PACKAGE / file).read_text(encoding="utf-8")))
    ]


def does_something(tree: ast.Module) -> bool:
    """Not only values, records and protocols."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return any(not function.name.startswith("__") and not is_declared_only(function) for function in functions)


def is_declared_only(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """The body has a docstring or `...`, and no statement."""
    return all(isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) for part in function.body)


def listed_looks() -> dict[str, int]:
    rows = (line.split() for line in LOOKS.read_text(encoding="utf-8").splitlines())
    return {name: int(count) for count, name in rows}


def listed_untested() -> list[str]:
    return UNTESTED.read_text(encoding="utf-8").splitlines()


def write() -> None:
    """Raises SystemExit if a list would grow."""
    counts, modules = looks(), untested()
    if LOOKS.exists() and sum(counts.values()) > sum(listed_looks().values()):
        sys.exit(f"tests look into private names {sum(counts.values())} times, before {sum(listed_looks().values())}")
    if UNTESTED.exists() and len(modules) > len(listed_untested()):
        sys.exit(f"no test file: {', '.join(sorted(set(modules) - set(listed_untested())))}")
    LOOKS.write_text("".join(f"{count:3} {name}\n" for name, count in counts.items()), encoding="utf-8")
    UNTESTED.write_text("".join(f"{name}\n" for name in modules), encoding="utf-8")


if __name__ == "__main__":
    write()
