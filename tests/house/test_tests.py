"""Do the tests keep the rules of their house? A list of exceptions may only shrink: a line too many fails as well."""

from __future__ import annotations

import ast

from tools.kit_page import PAGE, kit_page
from tools.test_lists import (
    does_something,
    facts,
    listed_looks,
    listed_untested,
    looks,
    looks_in,
    takes_from_a_test,
    untested,
)


def test_no_test_imports_from_a_test() -> None:
    found = [name for name, fact in facts().items() if fact.takes_from_a_test]
    assert not found, "what tests share belongs into tests/kit"


def test_an_import_from_a_test_is_seen_in_any_form() -> None:
    for line in ("from tests.core.test_ids import A", "from tests.core import test_ids", "import tests.core.test_ids"):
        assert takes_from_a_test(ast.parse(f"def f():\n    {line}"))
    assert not takes_from_a_test(ast.parse("from tests.kit.eventually import eventually"))


def test_no_test_looks_into_private_names_more_often_than_before() -> None:
    found, listed = looks(), listed_looks()
    more = {name: count for name, count in found.items() if count > listed.get(name, 0)}
    assert not more, "test what is public"
    assert found == listed, "fewer looks than listed: run python -m tools.test_lists"


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


def test_every_module_has_a_test_file_of_its_name() -> None:
    found, listed = untested(), listed_untested()
    new = sorted(set(found) - set(listed))
    assert not new, "no test file of their name in the mirrored folder"
    assert found == listed, "fewer modules than listed: run python -m tools.test_lists"


def test_a_module_of_values_and_records_needs_no_test_file() -> None:
    assert not does_something(ast.parse("A = 1\nclass B:\n    def __init__(self): ..."))
    assert does_something(ast.parse("class B:\n    def c(self): return 1"))
    assert does_something(ast.parse("async def c(): return 1"))


def test_a_module_of_protocols_needs_no_test_file() -> None:
    assert not does_something(
        ast.parse("class B(Protocol):\n    async def c(self):\n        'Doc.'\n    def d(self): ...")
    )
    assert does_something(ast.parse("class B(Protocol):\n    def c(self):\n        'Doc.'\n        return 1"))
    assert does_something(ast.parse("def c(): d()"))


def test_the_page_of_the_tests_is_made_from_the_source() -> None:
    assert PAGE.read_text(encoding="utf-8") == kit_page(), "run make docs"
