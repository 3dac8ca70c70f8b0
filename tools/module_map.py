"""Where is what? Writes docs/internals/modules.md from the first paragraph of every module's docstring.

.venv/bin/python tools/module_map.py            `make docs` calls it
"""

from __future__ import annotations

import ast
from pathlib import Path

TOP = Path(__file__).absolute().parents[1]
PACKAGE = TOP / "src" / "wakugumi"
PAGE = TOP / "docs" / "internals" / "modules.md"
FLOORS = ("limits", "core", "wire", "adapters", "roles", "app")
HEAD = """\
# Every module and the question it answers
Made by `make docs` from the docstrings; a test compares it with the source. The floors stand in the order of their
imports, lowest first: [Architecture](architecture.md).
"""


def first_paragraph(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def rows(folder: Path) -> list[str]:
    files = [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
    found = [f"| `{file.relative_to(PACKAGE)}` | {first_paragraph(file)} |" for file in files]
    return ["| file | question |", "|---|---|", *found, ""] if found else []


def modules_page() -> str:
    lines = [HEAD, "## wakugumi", *rows(PACKAGE)]
    for floor in FLOORS:
        for package in sorted((PACKAGE / floor).rglob("__init__.py")):
            name = package.parent.relative_to(PACKAGE).as_posix()
            lines += [
                f"{'#' * min(2 + name.count('/'), 4)} {name}",
                first_paragraph(package),
                "",
                *rows(package.parent),
            ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(modules_page(), encoding="utf-8")
