"""Which limits are there? Writes docs/reference/limits.md from the docstrings below the limits.

.venv/bin/python -m tools.limits_page            `make docs` calls it
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from tools.attribute_docs import attribute_docs
from tools.module_map import first_paragraph

TOP = Path(__file__).absolute().parents[1]
FOLDER = TOP / "src" / "wakugumi" / "limits"
PAGE = TOP / "docs" / "reference" / "limits.md"
HEAD = """\
# Limits
Made by `make docs` from the docstrings in `limits`; a test compares it with the source.

Every bound and every default has its unit in its name: `_S` seconds, `_BYTES` bytes, `_CHARS` characters, `_SHARE` a
part of 1. [Protocol](protocol.md#limits) says what happens to a peer beyond a limit; a limit that can be changed is a
[setting](settings.md). Letters and numbers in brackets are lines of the contract.
"""


def _shown(name: str, value: float) -> str:
    number = f"{int(value):,}".replace(",", " ") if value == int(value) else str(value)
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if "_BYTES" in name and value >= size and value % size == 0:
            return f"{int(value) // size} {unit}"
    return f"{number} s" if name.endswith("_S") else number


def _lines() -> Iterator[str]:
    yield HEAD
    for file in sorted(FOLDER.glob("*.py")):
        if file.stem in {"__init__", "units"}:
            continue
        module = import_module(f"wakugumi.limits.{file.stem}")
        yield f"## {file.stem.capitalize()}"
        yield first_paragraph(file)
        yield ""
        yield "| limit | value | meaning |"
        yield "|---|---|---|"
        for name, text in attribute_docs(file).items():
            yield f"| `{name}` | {_shown(name, getattr(module, name))} | {text} |"
        yield ""


def limits_page() -> str:
    return "\n".join(_lines()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(limits_page(), encoding="utf-8")
