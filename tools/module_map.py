"""Where is what? Writes docs/internals/modules.md and a page per floor from the first paragraph of
every module's docstring.

.venv/bin/python tools/module_map.py            `make docs` calls it
"""

from __future__ import annotations

import ast
from pathlib import Path

TOP = Path(__file__).absolute().parents[1]
PACKAGE = TOP / "src" / "wakugumi"
INDEX = TOP / "docs" / "internals" / "modules.md"
PAGES = TOP / "docs" / "internals" / "modules"
FLOORS = ("limits", "core", "wire", "adapters", "roles", "app")
HEAD = """\
# Every module and the question it answers
Made by `make docs` from the docstrings; a test compares the pages with the source. The floors stand in the order of
their imports, lowest first: [Architecture](architecture.md). Each floor has a page with all its files.
"""
FLOOR_HEAD = "Made by `make docs` from the docstrings. [All floors](../modules.md)"


def first_paragraph(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def rooms(floor: str) -> list[Path]:
    """Packages of a floor, the floor itself first."""
    return [file.parent for file in sorted((PACKAGE / floor).rglob("__init__.py"))]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def rows(folder: Path) -> list[str]:
    files = [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
    found = [f"| `{name_of(file)}` | {first_paragraph(file)} |" for file in files]
    return ["| file | question |", "|---|---|", *found, ""] if found else []


def index_page() -> str:
    lines = [HEAD, "## wakugumi", *rows(PACKAGE)]
    for floor, *inner in map(rooms, FLOORS):
        name = name_of(floor)
        lines += [f"## {name}", f"{first_paragraph(floor / '__init__.py')} [All files](modules/{name}.md)", ""]
        if inner:
            lines += ["| room | content |", "|---|---|"]
            lines += [f"| {_link(room)} | {first_paragraph(room / '__init__.py')} |" for room in inner] + [""]
    return _text(lines)


def _link(room: Path) -> str:
    name = name_of(room)
    return f"[{name}](modules/{name.split('/')[0]}.md#{name.replace('/', '')})"


def floor_page(floor: str) -> str:
    lines = [f"# {floor}", FLOOR_HEAD, ""]
    for room in rooms(floor):
        name = name_of(room)
        if name != floor:
            lines.append(f"{'#' * min(1 + name.count('/'), 3)} {name}")
        lines += [first_paragraph(room / "__init__.py"), "", *rows(room)]
    return _text(lines)


def _text(lines: list[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


def module_pages() -> dict[Path, str]:
    """All pages of the map with their text."""
    return {INDEX: index_page()} | {PAGES / f"{floor}.md": floor_page(floor) for floor in FLOORS}


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for page, text in module_pages().items():
        page.write_text(text, encoding="utf-8")
