"""JSON that others wrote is read in one place, which fails in one way: no other file of the sources decodes JSON."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "wakugumi"
FILES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))
READER = "wire/untrusted_json.py"
OWN = {"core/leader/jobs/broadcast.py": "the leader reads the list that it wrote itself; core stands below wire"}
"""Files that decode JSON of their own, and why that is no stranger's."""

DECODERS = {"decode", "Decoder", "loads", "load", "JSONDecoder"}
MODULES = {"json", "msgspec.json", "simplejson", "orjson", "ujson"}


def decodes(source: str) -> list[int]:
    """The lines that decode JSON."""
    tree = ast.parse(source)
    return sorted({*_calls(tree), *_imports(tree)})


def _calls(tree: ast.AST) -> Iterator[int]:
    """`json.loads`, `msgspec.json.decode`, also under another name of the module."""
    names = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                alias.asname or alias.name.split(".")[0]: (alias.asname and alias.name) or "" for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in DECODERS:
            first, _, rest = ast.unparse(node.value).partition(".")
            module = ".".join(part for part in (names.get(first) or first, rest) if part)
            if module in MODULES:
                yield node.lineno


def _imports(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            yield from (node.lineno for alias in node.names if alias.name in DECODERS or alias.name == "*")


@pytest.mark.parametrize("file", [file for file in FILES if file != READER and file not in OWN])
def test_no_other_file_decodes_json(file: str) -> None:
    assert decodes((SRC / file).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", [READER, *OWN])
def test_a_file_that_may_decode_json_does(file: str) -> None:
    assert decodes((SRC / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "source",
    [
        "import msgspec\nmsgspec.json.decode(b'')",
        "import msgspec\nmsgspec.json.Decoder(int).decode(b'')",
        "import msgspec as m\nm.json.decode(b'')",
        "import msgspec.json\nmsgspec.json.decode(b'')",
        "import msgspec.json as mj\nmj.decode(b'')",
        "from msgspec import json\njson.decode(b'')",
        "from msgspec import json as mj\nread = mj.decode",
        "from msgspec.json import decode",
        "from msgspec.json import Decoder as D",
        "import json\njson.loads('')",
        "import json as j\nj.load(file)",
        "from json import loads",
        "def f():\n    import json\n    return json.loads('')",
    ],
)
def test_a_planted_decoder_is_found(source: str) -> None:
    assert decodes(source)


@pytest.mark.parametrize(
    "source",
    [
        "import msgspec\nmsgspec.json.encode(1)\nmsgspec.msgpack.decode(b'')",
        "import json\njson.dumps(1)",
        "b''.decode()\nframe.Decoder()",
        "from wakugumi.wire.untrusted_json import read_json\nread_json(b'', int)",
    ],
)
def test_what_decodes_no_json_is_left_alone(source: str) -> None:
    assert decodes(source) == []
