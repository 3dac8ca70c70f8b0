"""The child of `local`: a guardian, and below it leader and worker in one loop, until the parent lets go or dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from pathlib import Path

import msgspec

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.files import remove_tree
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.signals import on_stop_signals
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.machine.open_files import raise_open_files
from wakugumi.adapters.net.connect import adopt
from wakugumi.adapters.net.link import Link, LinkOwner
from wakugumi.adapters.programs.guardian import guard
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.adapters.programs.program_rules import ProgramRules
from wakugumi.core.environment import WHOLE
from wakugumi.core.names import check_exec_name
from wakugumi.core.visible_text import visible
from wakugumi.errors import ConfigError, Refused
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.local.leftovers import end_abandoned_beside
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.worker import Worker
from wakugumi.wire.untrusted_json import read_json

log = logging.getLogger("wakugumi.embedded")


class Settings(msgspec.Struct, frozen=True):
    """Settings that `local` passes to its child."""

    slots: int
    folder: str | None
    named: dict[str, str]
    from_path: bool
    jobs: str
    is_temporary: bool
    socket: int
    lifeline: int
    parent: int


class ProgramsOfPath(Programs):
    """Programs on the PATH by their plain name: the user's own machine needs no list of allowed programs."""

    def __init__(self) -> None:
        super().__init__(None)

    def resolve(self, exec_name: str) -> str:
        check_exec_name(exec_name)
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
            path = os.path.join(folder, exec_name)
            if folder.startswith("/") and os.access(path, os.X_OK) and os.path.isfile(path):
                return path
        raise Refused("unknown-program", f"there is no program {exec_name!r} on the PATH")


def main(text: str) -> None:
    """The whole life of the child."""
    settings = read_json(text, Settings)
    handler = logging.StreamHandler()
    handler.setFormatter(_Visible())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for file in (settings.socket, settings.lifeline):
        os.set_inheritable(file, False)  # Programs of jobs must not inherit them.
    raise_open_files()
    code = guard(lambda: _serve(settings))
    if settings.is_temporary:
        with contextlib.suppress(OSError):  # Files that cannot be removed are left to the system.
            remove_tree(settings.jobs)
    sys.stderr.flush()
    os._exit(code)  # The parent waits: an orderly end of the interpreter would take longer than all the rest.


class _Visible(logging.Formatter):
    """The message alone, with hostile characters escaped: quoted text commands no terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record), "\n\t")


def _serve(settings: Settings) -> int:
    try:
        return run(_live(settings))
    except ConfigError as error:
        log.error("%s", error)
        return error.exit_code


async def _live(settings: Settings) -> int:
    place = FolderPlace(Path(settings.jobs) / ".blobs")  # Client and worker use the same folder.
    leader = Leader(blobs=LeaderBlobs(place, url=place.url, sweeps=True))

    async def dial(owner: LinkOwner) -> Link:
        ours, theirs = socket.socketpair()
        await leader.adopt(ours)
        return await adopt(theirs, owner, trusted=True)

    # There is no other worker, and the caller should get the reason of a failure.
    told = WorkerSettings(
        leader=dial,
        jobs=Path(settings.jobs),
        slots=settings.slots,
        cpu_cap=None,
        name="local",
        rests=False,
        rules=ProgramRules(WHOLE),
    )
    worker = Worker(told, _programs(settings))
    tasks = Tasks()
    working = tasks.start(worker.run(), name="embedded worker")
    parent = tasks.start(_let_go(settings).wait(), name="the parent lives")
    await leader.adopt(socket.socket(fileno=settings.socket))
    if settings.is_temporary:
        tasks.start(asyncio.to_thread(end_abandoned_beside, settings.jobs), name="what dead grids left")
    await asyncio.wait({working, parent, leader.drive.failed}, return_when=asyncio.FIRST_COMPLETED)
    code = 0 if parent.done() else 1
    await tasks.close()
    await leader.close()
    return code


def _let_go(settings: Settings) -> asyncio.Event:
    """Set when the parent closes the lifeline, or is gone."""
    let_go = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(settings.lifeline, let_go.set)
    on_stop_signals(loop, let_go.set)
    with contextlib.suppress(AttributeError, OSError):
        # Another child of the parent may hold the lifeline too; the parent itself is one process.
        loop.add_reader(os.pidfd_open(settings.parent), let_go.set)
    return let_go


def _programs(settings: Settings) -> Programs:
    if settings.from_path:
        return ProgramsOfPath()
    folder = None if settings.folder is None else Path(settings.folder)
    return Programs(folder, {name: Path(path) for name, path in settings.named.items()})
