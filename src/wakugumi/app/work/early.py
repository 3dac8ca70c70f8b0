"""How does a short command stay short? The embedded grid starts while the command line is still being read.

Both take a tenth of a second or more, and two CPUs can do both at the same time. So the program and `--slots` are
guessed from the first words. A wrong guess costs one process, which is ended again. This module is imported first, and
imports little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakugumi.app.client_settings import ClientSettings
from wakugumi.app.settings import load
from wakugumi.app.work.programs import exec_name, find
from wakugumi.errors import WakugumiError
from wakugumi.roles.local.local import Local, local

_COMMANDS: Final = ("run", "map")
_NOT_WITH: Final = ("--leader", "--client-id", "--help", "-h")
_begun: list[Local] = []


def start(words: Sequence[str]) -> None:
    """Starts an embedded grid if these words look like a command that needs one."""
    if len(words) < 2 or words[0] not in _COMMANDS or words[1].startswith("-"):
        return
    if any(word.startswith(_NOT_WITH) for word in words):
        return
    try:
        is_one = words[0] == "run"
        fields = ("leader", "client_id") if is_one else ("leader", "client_id", "slots")
        client = load(ClientSettings, {"slots": _slots(words)}, fields)
        if not client.leader:
            grid = _grid(find(words[1]), 1 if is_one else client.slots, client.client_id)
            grid.begin()
            _begun.append(grid)
    except (WakugumiError, ValueError):
        return  # The command itself reports the error.


def take(path: str, slots: int, client_id: str) -> Local:
    """An embedded grid for this program: the started one if the guess was right."""
    wanted = _grid(path, slots, client_id)
    if _begun and _begun[0].is_like(wanted):
        return _begun.pop()
    return wanted


def drop() -> None:
    """Ends a grid that no command took."""
    while _begun:
        _begun.pop().drop()


def _grid(path: str, slots: int, client_id: str) -> Local:
    return local(slots, programs={exec_name(path): path}, client_id=client_id or None)


def _slots(words: Sequence[str]) -> int | None:
    for at, word in enumerate(words):
        if word == "--slots":
            return int(words[at + 1]) if at + 1 < len(words) else None
        if word.startswith("--slots="):
            return int(word.removeprefix("--slots="))
    return None
