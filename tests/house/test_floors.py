"""The house stands: a floor imports only floors below it, and `core` and `wire` do not touch the world.

    core < wire < adapters < roles < app        `errors` and `limits` stand below all, the package's door above `roles`

On each floor a room imports only rooms below it (`ROOMS`), no modules import each other, and no two classes share a
name. Imports are read from the source, also those under TYPE_CHECKING, inside functions and by name; nothing is run.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

SRC = Path(__file__).parents[2] / "src"
FILES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))

FLOORS = {"errors": 0, "limits": 0, "core": 1, "wire": 2, "adapters": 3, "roles": 4, "app": 5}
DOORS = {"wakugumi/__init__.py": FLOORS["roles"], "wakugumi/__main__.py": FLOORS["app"]}
"""What a user imports, and what `python -m` runs: they belong to no floor and reach up to this one."""

PURE_FLOORS = {"errors", "limits", "core", "wire"}
PURE_MODULES = {
    *(
        "__future__",
        "_blake2",
        "abc",
        "base64",
        "bisect",
        "collections",
        "collections.abc",
        "dataclasses",
        "enum",
        "functools",
    ),
    *(
        "hashlib",
        "heapq",
        "hmac",
        "ipaddress",
        "itertools",
        "math",
        "msgspec",
        "operator",
        "re",
        "string",
        "struct",
        "types",
        "typing",
    ),
    *("multipart", "unicodedata", "uuid", "zlib"),
}
"""All that a pure floor may have of the outside: values and functions of values."""
IMPURE_NAMES = {"uuid.uuid1", "uuid.uuid4", "uuid.getnode"}
"""Chance, the clock and the machine's address in an otherwise pure module."""
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint", "globals"}

FLOOR_OF_LIBRARY = {"cyclopts": "app", "rich": "app"} | dict.fromkeys(
    (
        "backports",
        "compression",
        "cryptography",
        "httptools",
        "isal",
        "obstore",
        "prometheus_client",
        "psutil",
        "uvloop",
    ),
    "adapters",
)
DRAWERS = {"util", "utils", "common", "base", "helper", "helpers", "manager", "managers", "misc"}


parsed = functools.cache(ast.parse)


class Import(NamedTuple):
    line: int
    module: str
    """With the name that was taken from it, if one was: `wakugumi.core.ids.JobId`."""


def imports_of(file: str, tree: ast.AST) -> Iterator[Import]:
    package = PurePosixPath(file).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            start = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(node.lineno, f"{start}.{alias.name}")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__", "run_module"} and isinstance(node.args[0].value, str):
                yield Import(node.lineno, node.args[0].value)


def faults(file: str, source: str) -> list[str]:
    """What this file does that its floor may not."""
    tree = parsed(source)
    found = list(imports_of(file, tree))
    room = PurePosixPath(file).with_suffix("").parts[1]
    height = DOORS.get(file, FLOORS.get(room))
    if height is None:
        return [f"{file}: {room} is no floor"]
    wrong = [f"{file}:{one.line} imports {one.module}" for one in found if not _may_import(room, height, one.module)]
    wrong += [f"{file}:{one.line} takes the private {one.module}" for one in found if _is_private(one.module)]
    wrong += [f"{file}:{line} reaches into {name}" for line, name in _private_reads(tree)]
    if room in PURE_FLOORS:
        wrong += [f"{file}:{line} calls {name}" for line, name in _impure_calls(tree)]
    if PurePosixPath(file).stem in DRAWERS:
        wrong.append(f"{file}: a drawer, not a name")
    return wrong


def _may_import(room: str, height: int, module: str) -> bool:
    first, _, rest = module.partition(".")
    if first == "wakugumi":
        if rest == "__version__":
            return True
        floor = FLOORS.get(rest.split(".")[0])
        return floor is not None and floor <= height
    if room in PURE_FLOORS:
        if module in IMPURE_NAMES:
            return False
        return any(module == pure or module.rpartition(".")[0] == pure for pure in PURE_MODULES) or first == "msgspec"
    library_floor = FLOOR_OF_LIBRARY.get(first)
    return library_floor is None or room == library_floor


def _is_private(module: str) -> bool:
    parts = module.split(".")
    return parts[0] == "wakugumi" and any(part.startswith("_") and not part.startswith("__") for part in parts)


def _private_reads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """`module._name`, where the module is one of ours."""
    ours: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            ours |= {alias.asname for alias in node.names if alias.asname and alias.name.startswith("wakugumi.")}
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("wakugumi")):
            ours |= {alias.asname or alias.name for alias in node.names if alias.name.islower()}
    for line, module, name in _attributes(tree):
        if module in ours and _is_private(f"wakugumi.{name}"):
            yield line, f"{module}.{name}"


def _impure_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield node.lineno, node.func.id
    for line, module, name in _attributes(tree):
        if f"{module}.{name}" in IMPURE_NAMES:
            yield line, f"{module}.{name}"


def _attributes(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Every `a.b`, as line, `a` and `b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, node.value.id, node.attr


def test_there_is_a_house() -> None:
    assert {"wakugumi/core/leader/machine.py", "wakugumi/wire/frame.py", "wakugumi/roles/leader/leader.py"} <= set(
        FILES
    )


@pytest.mark.parametrize("file", FILES)
def test_a_file_keeps_to_its_floor(file: str) -> None:
    assert faults(file, (SRC / file).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core/x.py", "import wakugumi.wire.frame"),
        ("core/leader/x.py", "import wakugumi.wire.frame"),
        ("core/x.py", "from wakugumi.wire import frame"),
        ("core/x.py", "from wakugumi import adapters"),
        ("core/x.py", "from ..wire import frame"),
        ("core/x.py", "from ..wire.frame import Frame"),
        ("core/x.py", "def f():\n    from wakugumi.adapters.net.link import Link"),
        ("core/x.py", "if TYPE_CHECKING:\n    from wakugumi.roles.leader.leader import Leader"),
        ("core/x.py", "from wakugumi import connect"),
        ("core/x.py", "import asyncio"),
        ("core/x.py", "import asyncio.tasks as re"),
        ("core/x.py", "import collections.abc, time"),
        ("core/x.py", "def f():\n    import random"),
        ("core/x.py", "from os import path"),
        ("core/x.py", "from pathlib import Path"),
        ("core/x.py", "from uuid import UUID, uuid4"),
        ("core/x.py", "import uuid\nuuid.uuid4()"),
        ("core/x.py", "import re\nopen('x')"),
        ("core/x.py", "print('x')"),
        ("core/x.py", "__import__('time')"),
        ("core/x.py", "import importlib"),
        ("wire/x.py", "import logging"),
        ("wire/x.py", "import socket"),
        ("wire/x.py", "from wakugumi.adapters import net"),
        ("adapters/x.py", "from wakugumi.roles import leader"),
        ("adapters/x.py", "import importlib\nimportlib.import_module('wakugumi.roles.leader.leader')"),
        ("adapters/x.py", "import rich"),
        ("roles/x.py", "from rich.console import Console"),
        ("roles/x.py", "from cyclopts import App"),
        ("roles/x.py", "import uvloop"),
        ("roles/x.py", "from wakugumi.app.cli import main"),
        ("roles/x.py", "import wakugumi"),
        ("errors.py", "from wakugumi.core.ids import JobId"),
        ("limits/wire.py", "import os"),
        ("__init__.py", "from wakugumi.app import cli"),
        ("roles/x.py", "from wakugumi.core.ids import _NAMESPACE"),
        ("roles/x.py", "from wakugumi.core import _hidden"),
        ("roles/x.py", "from wakugumi.wire import frame as fr\nfr._cut(b'', 0, 0)"),
        ("core/utils.py", ""),
        ("roles/manager.py", ""),
        ("stairs/x.py", ""),
    ],
)
def test_a_planted_fault_is_found(file: str, source: str) -> None:
    assert len(faults(f"wakugumi/{file}", source)) >= 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core/x.py", "from wakugumi.core.ids import JobId\nfrom wakugumi.limits.units import MIB\nfrom . import ids"),
        ("core/x.py", "import msgspec\nimport msgspec.json\nfrom uuid import UUID, uuid5\nfrom collections import abc"),
        ("core/x.py", "class A:\n    def _f(self): return self._f()"),
        ("wire/x.py", "from wakugumi.core import ids\nfrom struct import Struct"),
        ("adapters/x.py", "import asyncio, socket, uvloop\nfrom wakugumi.wire.frame import Frame"),
        (
            "roles/x.py",
            "from wakugumi import __version__\nfrom wakugumi.adapters.net.link import Link\nimport os\nos._exit(0)",
        ),
        ("app/x.py", "from cyclopts import App\nimport rich\nfrom wakugumi.roles.leader.leader import Leader"),
        ("__init__.py", "def __getattr__(name):\n    from wakugumi.roles.client.grid import connect"),
        ("__main__.py", "from wakugumi.app.cli import main"),
    ],
)
def test_what_is_allowed_is_left_alone(file: str, source: str) -> None:
    assert faults(f"wakugumi/{file}", source) == []


LINES_MAX = 450
LONGER: dict[str, int] = {}
"""Files that are still longer, with their lines. The list may only shrink."""


def test_a_file_has_one_question_and_few_lines() -> None:
    lines = {file: len((SRC / file).read_text(encoding="utf-8").splitlines()) for file in FILES}
    too_long = {file: count for file, count in lines.items() if count > LONGER.get(file, LINES_MAX)}
    assert not too_long, f"more than {LINES_MAX} lines: split the file by question, or find what can go"
    assert [file for file in LONGER if lines.get(file, 0) <= LINES_MAX] == [], "short enough: take it off the list"


# Rooms.

ROOMS: dict[str, tuple[str, ...]] = {
    "limits": ("units", "*"),
    "core": ("*", "access", "connections", "gateway", "client", "leader", "files", "runner", "transfers", "node"),
    "core/leader": ("questions answer_records", "* jobs scheduling journal", "nodes", "admin", "machine", "callers"),
    "wire": (
        *("percent", "untrusted_json", "access_line", "frame", "web_origin", "form", "line", "problem"),
        *("messages", "job_options", "request_digest", "node_request"),
    ),
    "adapters": (
        *("*", "loop", "spool sent_parts", "machine", "net access", "http", "lines", "port"),
        *("zip", "programs", "jobdir", "blobs", "journal", "gateway_store"),
    ),
    "roles": ("access", "*", "http", "client", "runner", "node", "leader", "local", "gateway"),
    "roles/leader": (
        *("peer_access", "hub", "questions", "files", "submit", "old_peers", "effects", "peer_questions", "connection"),
        *("nodes", "settings", "http", "leader"),
    ),
    "app": ("show", "*", "work", "serve", "admin", "access", "drill", "commands", "cli"),
}
"""Of a folder, its rooms from below: a room imports only rooms before it. `*` stands for all modules of the folder that
are not named. Names with a blank between them stand at one height. Modules of one height see each other as they like,
without a circle."""


def room_faults(file: str, source: str) -> list[str]:
    """What this file imports from a room above its own."""
    place = PurePosixPath(file).with_suffix("").parts[1:]
    found = list(imports_of(file, parsed(source)))
    wrong = []
    for folder, order in ROOMS.items():
        base = tuple(folder.split("/"))
        if place[: len(base)] != base or place[len(base) :] in {(), ("__init__",)}:
            continue
        room = place[len(base)]
        named = " ".join(order).split()
        if room not in named and ("*" not in named or len(place) > len(base) + 1):
            wrong.append(f"{file}: {folder} has no place for {room}")
            continue
        height = _height(order, room)
        for one in found:
            other = tuple(one.module.split(".")[1:])
            if other[: len(base)] == base and len(other) > len(base) and _height(order, other[len(base)]) > height:
                wrong.append(f"{file}:{one.line} is below {one.module}")
    return wrong


def _height(order: tuple[str, ...], room: str) -> int:
    heights = {name: height for height, names in enumerate(order) for name in names.split()}
    return heights.get(room, heights["*"]) if "*" in heights else heights[room]


def circle(sources: Mapping[str, str]) -> list[str]:
    """A circle of modules that import each other, if there is one. What the package's doors import does not count."""
    modules = {_module_of(file): file for file in sources}
    graph: dict[str, set[str]] = {}
    for module, file in modules.items():
        if file not in DOORS:
            named = (_in_package(one.module, modules) for one in imports_of(file, parsed(sources[file])))
            graph[module] = {other for other in named if other and other != module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _module_of(file: str) -> str:
    return ".".join(PurePosixPath(file).with_suffix("").parts).removesuffix(".__init__")


def _in_package(name: str, modules: Mapping[str, str]) -> str | None:
    """The module that an import means: itself, or the one that a name is taken from."""
    return next((module for module in (name, name.rpartition(".")[0]) if module in modules), None)


def doubled(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Class names that several modules have, but for private ones."""
    found: dict[str, list[str]] = {}
    for file, source in sources.items():
        names = {node.name for node in ast.walk(parsed(source)) if isinstance(node, ast.ClassDef)}
        for name in names:
            if not name.startswith("_"):
                found.setdefault(name, []).append(file)
    return {name: files for name, files in found.items() if len(files) > 1}


def in_package(sources: Mapping[str, str]) -> dict[str, str]:
    return {f"wakugumi/{file}": source for file, source in sources.items()}


@pytest.fixture(scope="module")
def house() -> dict[str, str]:
    return {file: (SRC / file).read_text(encoding="utf-8") for file in FILES}


@pytest.mark.parametrize("file", FILES)
def test_a_file_keeps_to_its_room(file: str) -> None:
    assert room_faults(file, (SRC / file).read_text(encoding="utf-8")) == []


def test_each_room_in_the_order_is_there() -> None:
    rooms = {f"{folder}/{room}" for folder, order in ROOMS.items() for room in " ".join(order).split() if room != "*"}
    assert [
        room for room in rooms if not any(f"wakugumi/{room}{end}" in FILES for end in (".py", "/__init__.py"))
    ] == []


def test_no_modules_import_each_other(house: dict[str, str]) -> None:
    assert circle(house) == []


def test_no_class_name_is_there_twice(house: dict[str, str]) -> None:
    assert doubled(house) == {}


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core/x.py", "from wakugumi.core.leader.records import JobRecord"),
        ("core/client/x.py", "if TYPE_CHECKING:\n    from wakugumi.core.leader.machine import LeaderMachine"),
        ("core/leader/jobs/x.py", "def f():\n    from wakugumi.core.runner import slots"),
        ("core/leader/x.py", "from ..files.machine import FileDistribution"),
        ("core/leader/x.py", "from wakugumi.core.leader.admin.answers import answer"),
        ("core/leader/events.py", "from wakugumi.core.leader.machine import LeaderMachine"),
        ("core/leader/answer_records.py", "from wakugumi.core.leader.jobs.states import DONE"),
        ("core/access/x.py", "from wakugumi.core.leader.questions import Question"),
        ("core/cellar/x.py", ""),
        ("wire/percent.py", "from wakugumi.wire.frame import Frame"),
        ("wire/x.py", ""),
        ("adapters/net/link.py", "from wakugumi.adapters.http.page import Page"),
        ("adapters/http/x.py", "import wakugumi.adapters.blobs.store"),
        ("roles/client/x.py", "from wakugumi.roles.leader.hub import Hub"),
        ("roles/leader/submit.py", "from wakugumi.roles.leader.leader import Leader"),
        ("roles/leader/files/blobs.py", "from wakugumi.roles.leader.submit import Submissions"),
        ("roles/leader/http/pages.py", "if TYPE_CHECKING:\n    from wakugumi.roles.leader.leader import Leader"),
        ("roles/leader/x.py", ""),
        ("app/settings.py", "def f():\n    from wakugumi.app.serve.worker import worker"),
        ("limits/units.py", "from wakugumi.limits.wire import CAP"),
    ],
)
def test_a_planted_import_from_above_is_found(file: str, source: str) -> None:
    assert len(room_faults(f"wakugumi/{file}", source)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core/leader/machine.py", "from wakugumi.core.leader.jobs.lifecycle import JobLifecycle"),
        ("core/leader/jobs/x.py", "from wakugumi.core.leader.records import JobRecord\nfrom wakugumi.core import ids"),
        ("core/leader/scheduling/x.py", "from wakugumi.core.leader.jobs import states"),
        ("core/leader/events.py", "from wakugumi.core.leader.questions import Question"),
        ("core/leader/__init__.py", ""),
        ("roles/leader/leader.py", "from wakugumi.roles.leader.http.pages import GroupPages"),
        ("roles/gateway/x.py", "from wakugumi.roles.http.openapi import document\nfrom wakugumi.core.ids import JobId"),
        ("app/cli.py", "from wakugumi.app.drill import drill"),
    ],
)
def test_what_comes_from_below_is_left_alone(file: str, source: str) -> None:
    assert room_faults(f"wakugumi/{file}", source) == []


@pytest.mark.parametrize(
    "sources",
    [
        {"core/a.py": "import wakugumi.core.b", "core/b.py": "from wakugumi.core.a import A"},
        {
            "core/a.py": "from wakugumi.core import b",
            "core/b.py": "if TYPE_CHECKING:\n    from wakugumi.core.a import A",
        },
        {"core/a.py": "from . import b", "core/b.py": "def f():\n    from .a import A"},
        {"core/a.py": "from .b import B", "core/b.py": "from .c import C", "core/c.py": "from .a import A"},
        {"core/__init__.py": "from wakugumi.core.a import A", "core/a.py": "from wakugumi.core import VERSION"},
    ],
)
def test_a_planted_circle_is_found(sources: dict[str, str]) -> None:
    assert len(circle(in_package(sources))) == len(sources) + 1


def test_a_line_of_modules_is_no_circle() -> None:
    sources = {"core/a.py": "from .b import B\nfrom .c import C", "core/b.py": "from .c import C", "core/c.py": ""}
    assert circle(in_package({"__init__.py": "from wakugumi.core.a import A", **sources})) == []


def test_a_planted_second_class_of_a_name_is_found() -> None:
    twice = {"core/a.py": "class Job: ...\nclass _Own: ...", "app/b.py": "def f():\n    class Job: ..."}
    sources = in_package({**twice, "app/c.py": "class Other: ...\nclass _Own: ..."})
    assert doubled(sources) == {"Job": ["wakugumi/core/a.py", "wakugumi/app/b.py"]}
