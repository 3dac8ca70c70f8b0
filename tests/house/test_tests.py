"""Do the tests keep the rules of their house? A list of exceptions may only shrink: a line too many fails as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.private_looks import LIST, listed, looks, looks_in, page

TOP = Path(__file__).parents[2]
TESTS = TOP / "tests"

IMPORTS_FROM_TESTS = {
    "core/client/test_leaders.py",
    "core/leader/test_bytes_given.py",
    "core/runner/test_slots_callers.py",
    "roles/runner/files/test_inputs.py",
    "roles/runner/files/test_send_results.py",
    "roles/runner/files/test_serve.py",
    "roles/runner/test_station.py",
}
"""Files that still import from a test file. What tests share belongs into tests/kit."""


@cache
def trees() -> dict[str, ast.Module]:
    return {
        file.relative_to(TESTS).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(TESTS.rglob("*.py"))
    }


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def takes_from_a_test(tree: ast.Module) -> bool:
    return any(
        name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))
        for name in imported(tree)
    )


def test_no_test_imports_from_a_test() -> None:
    assert {name for name, tree in trees().items() if takes_from_a_test(tree)} == IMPORTS_FROM_TESTS


def test_an_import_from_a_test_is_seen_in_any_form() -> None:
    for line in ("from tests.core.test_ids import A", "from tests.core import test_ids", "import tests.core.test_ids"):
        assert takes_from_a_test(ast.parse(f"def f():\n    {line}"))
    assert not takes_from_a_test(ast.parse("from tests.kit.eventually import eventually"))


def test_no_test_looks_into_private_names_more_often_than_before() -> None:
    found = looks()
    more = {name: count for name, count in found.items() if count > listed().get(name, 0)}
    assert not more, "these look into private names: test what is public, or mend tests/house/private_looks.txt"
    assert LIST.read_text(encoding="utf-8") == page(found), "fewer looks than listed: python -m tools.private_looks"


def test_a_look_is_counted_in_any_form() -> None:
    code = """
from wakugumi.core.ids import _text
class Test:
    def test(self, monkeypatch):
        self._own = super()._own
        row._replace(a=1).__class__
        grid._session._uploads
        monkeypatch.setattr(module, "_LIMIT", 1)
        monkeypatch.setattr("wakugumi.core.ids._text", 1)
"""
    assert looks_in(ast.parse(code)) == 5
