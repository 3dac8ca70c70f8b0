"""The house stands: a floor imports only floors below it, and `core` and `wire` do not touch the world.

    core < wire < adapters < roles < app        `errors` and `limits` stand below all, the package's door above `roles`

Imports are read from the source, also those under TYPE_CHECKING, inside functions and by name; nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
    *("unicodedata", "uuid", "zlib"),
}
"""All that a pure floor may have of the outside: values and functions of values."""
IMPURE_NAMES = {"uuid.uuid1", "uuid.uuid4", "uuid.getnode"}
"""Chance, the clock and the machine's address in an otherwise pure module."""
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint", "globals"}

FLOOR_OF_LIBRARY = {"cyclopts": "app", "rich": "app"} | dict.fromkeys(
    ("aiohttp", "backports", "compression", "isal", "obstore", "prometheus_client", "psutil", "uvloop"), "adapters"
)
DRAWERS = {"util", "utils", "common", "base", "helper", "helpers", "manager", "managers", "misc"}


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
    tree = ast.parse(source)
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
