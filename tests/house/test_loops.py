"""No loop that must live ends by an exception: an endless one is started by `Tasks.start_loop`, which begins it anew.

A coroutine with a `while True` that nothing inside it leaves can only end by an exception. Such a one is looked for in
the sources, and must not be given to `Tasks.start`, `create_task` or `ensure_future`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "wakugumi"
FILES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))
STARTERS = {"start", "create_task", "ensure_future"}


def mortal_loops(source: str) -> list[str]:
    """Endless loops of a file that are started as if they had an end."""
    tree = ast.parse(source)
    endless = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef) and any(_endless_in(node))
    }
    started = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) in STARTERS]
    works = [work for node in started for work in node.args[:1] if isinstance(work, ast.Call)]
    return [f"{work.lineno}: {_name(work.func)}" for work in works if _name(work.func) in endless]


def unawaited(source: str) -> list[str]:
    """Coroutines that are made outside the task that awaits them: if it is cancelled before it begins, nobody does."""
    tree = ast.parse(source)
    coroutines = {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    started = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) in STARTERS]
    works = [work for node in started for work in node.args[:1] if isinstance(work, ast.Call)]
    given = [one for work in works for one in work.args if isinstance(one, ast.Call)]
    return [f"{one.lineno}: {_name(one.func)}" for one in given if _name(one.func) in coroutines]


def immortal_loops(source: str) -> list[str]:
    return [
        ast.unparse(node.args[0])
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and _name(node.func) == "start_loop"
    ]


def _endless_in(function: ast.AsyncFunctionDef) -> Iterator[ast.While]:
    for node in ast.walk(function):
        is_endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value is True
        if is_endless and not any(_ways_out(node.body, depth=0)):
            yield node


def _ways_out(body: list[ast.stmt], depth: int) -> Iterator[ast.stmt]:
    """`return` anywhere, and `break` of this loop. What it raises is no way out that anybody wants."""
    for node in body:
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break) and depth == 0):
            yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        inside = depth + isinstance(node, ast.For | ast.AsyncFor | ast.While)
        for name in ("body", "orelse", "finalbody"):
            yield from _ways_out(getattr(node, name, []), inside)
        for handler in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            yield from _ways_out(handler.body, inside)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("file", FILES)
def test_no_endless_loop_is_started_as_if_it_had_an_end(file: str) -> None:
    assert mortal_loops((SRC / file).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", FILES)
def test_no_task_is_given_a_coroutine_that_it_may_never_await(file: str) -> None:
    assert unawaited((SRC / file).read_text(encoding="utf-8")) == []


def test_the_loops_that_must_live_are_started_so() -> None:
    """Those that end while nobody needs them are not found by their shape."""
    started = {file: immortal_loops((SRC / file).read_text(encoding="utf-8")) for file in FILES}
    assert {file: len(loops) for file, loops in started.items() if loops} == {
        "app/drill/client.py": 1,
        "app/work/map/run.py": 1,
        "app/show/progress.py": 1,
        "roles/access/keys.py": 1,
        "roles/gateway/server.py": 1,
        "roles/leader/files/blobs.py": 1,
        "roles/runner/station.py": 1,
        "roles/runner/worker.py": 1,
    }


ENDLESS = "async def poll():\n    while True:\n        await ask()\n"


@pytest.mark.parametrize(
    "source",
    [
        ENDLESS + "tasks.start(poll(), name='x')",
        ENDLESS + "self._tasks.start(self.poll(1), name='x')",
        ENDLESS + "asyncio.create_task(poll())",
        "async def poll():\n    while True:\n        for one in all:\n            break\n" + "tasks.start(poll())",
        "async def poll():\n    with x:\n        while True:\n            pass\ntasks.start(poll())",
    ],
)
def test_a_planted_loop_is_found(source: str) -> None:
    assert len(mortal_loops(source)) == 1


def test_a_planted_coroutine_is_found() -> None:
    source = "async def drop():\n    pass\n"
    assert unawaited(source + "self._tasks.start(quietly(drop()), name='drop')") == ["3: drop"]
    assert unawaited(source + "self._tasks.start(quietly(drop), name='drop')") == []


@pytest.mark.parametrize(
    "source",
    [
        ENDLESS + "tasks.start_loop(poll, name='x')",
        "async def ask():\n    while True:\n        if done:\n            return 1\ntasks.start(ask())",
        "async def ask():\n    while True:\n        if x:\n            break\ntasks.start(ask())",
        "async def ask():\n    while waiting:\n        x\ntasks.start(ask())",
    ],
)
def test_what_ends_or_lives_is_left_alone(source: str) -> None:
    assert mortal_loops(source) == []
