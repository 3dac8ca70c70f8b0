"""Nothing prints around `app/show/output.py` and `app/logs.py`, which make text from outside visible.

The source is read, not run: a `print` that somebody adds to a command is found before a stranger finds it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "wakugumi"
FILES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))
SINK = "app/show/output.py"
LOGS = {"app/logs.py", "roles/local/child.py"}
"""Whoever says how a log line looks."""
LOOKED_AT = {"is_drawable", "program_out", "isinstance"}
"""What a stream may be handed to."""
HARMLESS = {"flush", "isatty", "fileno", "reconfigure"}
PRINTERS = {"print", "pprint", "input"}
WRITERS = {"print_exc", "print_exception", "print_stack", "print_tb", "from_ansi", "from_markup"}
CONSOLES = {"rich.console.Console", "rich.print", "rich.get_console"}


def faults(file: str, source: str) -> Iterator[str]:
    tree = ast.parse(source)
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        at = f"{file}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0] if node.args else None
            if isinstance(node.func, ast.Name) and called in PRINTERS:
                yield f"{at} calls {called}"
            if called in WRITERS:
                yield f"{at} calls {called}"
            if called == "write" and isinstance(first, ast.Constant) and first.value in (1, 2):
                yield f"{at} writes to a standard stream by its number"
            if called in {"Live", "Progress"} and not any(word.arg == "console" for word in node.keywords):
                yield f"{at} draws on a console that is not ours"
            if called in {"basicConfig", "StreamHandler"} and file not in LOGS:
                yield f"{at} says how a log line looks"
        elif isinstance(node, ast.Attribute) and node.attr in {"stdout", "stderr", "__stdout__", "__stderr__"}:
            if isinstance(node.value, ast.Name) and node.value.id == "sys" and not _is_harmless(node, parents):
                yield f"{at} uses sys.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and not _is_for_types(node, parents):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            if names & (CONSOLES | {"sys.stdout", "sys.stderr"}):
                yield f"{at} imports {sorted(names)}"


def _is_harmless(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """It is asked what it is, flushed, or handed to somebody who does no more."""
    parent = parents[node]
    if isinstance(parent, ast.Attribute):
        return parent.attr in HARMLESS
    if isinstance(parent, ast.Call):
        called = parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")
        return called in LOOKED_AT
    while isinstance(parent, ast.Tuple):  # of a loop over streams, in which each is looked at for itself
        parent = parents[parent]
    return isinstance(parent, ast.Compare | ast.For)


def _is_for_types(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents[node]
    return isinstance(parent, ast.If) and isinstance(parent.test, ast.Name) and parent.test.id == "TYPE_CHECKING"


@pytest.mark.parametrize("file", [file for file in FILES if file != SINK])
def test_only_the_sink_prints(file: str) -> None:
    assert list(faults(file, (SRC / file).read_text())) == []


@pytest.mark.parametrize(
    "line",
    [
        "print('x')",
        "sys.stdout.write(name)",
        "sys.stderr.buffer.write(name)",
        "stream = sys.stdout",
        "csv.writer(sys.stdout)",
        "os.write(2, name)",
        "from rich.console import Console",
        "Live(picture)",
        "traceback.print_exc()",
        "logging.StreamHandler()",
        "Text.from_ansi(name)",
    ],
)
def test_whoever_prints_around_it_is_found(line: str) -> None:
    assert list(faults("app/new.py", line))


def test_the_sink_is_where_it_is_said_to_be() -> None:
    assert list(faults(SINK, (SRC / SINK).read_text()))
