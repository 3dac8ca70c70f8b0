"""Which commands are there? Writes docs/use/commands.md from the table of commands.

.venv/bin/python -m tools.commands_page            `make docs` calls it
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from wakugumi.app.commands import COMMANDS, Command, help_page

PAGE = Path(__file__).absolute().parents[1] / "docs" / "use" / "commands.md"
HEAD = """\
# The command line
Made by `make docs` from `app/commands.py`; a test compares it with the source.

`waku COMMAND --help` says the same, with every flag. stdout is data, stderr is talk, and `--output json` makes
stdout fit for programs where a command has it. [Settings](../reference/settings.md) has variables and `waku.toml`,
[Errors](../reference/errors.md#exit-codes-of-waku) the exit codes.
"""


def _lines() -> Iterator[str]:
    yield HEAD
    for title, commands in COMMANDS.items():
        yield f"## {title}"
        yield "| command | purpose |"
        yield "|---|---|"
        for command in commands:
            yield f"| [waku {command.name}](#waku-{command.name.replace(' ', '-')}) | {command.summary} |"
        yield ""
        for command in commands:
            yield from _chapter(command)


def _chapter(command: Command) -> Iterator[str]:
    page = help_page(command)
    yield f"### waku {command.name}"
    yield f"```text\n{page.usage.removeprefix('Usage: ')}".rstrip() + "\n```"
    yield re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", page.about)
    if page.examples:
        yield f"```text\n{page.examples}\n```"
    yield ""


def commands_page() -> str:
    return "\n".join(_lines()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")
