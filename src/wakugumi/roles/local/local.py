"""How does a program run jobs without any set-up? With a leader and a worker embedded in it.

    with wakugumi.local(programs="./bin") as grid: …            a Client
    async with wakugumi.local(programs="./bin") as grid: …      a Grid

Leader and worker live in one child process (`roles/local/child.py`), connected by a socket that no other process can
reach: no port is open. The child has a session of its own, so that Ctrl-C in the terminal reaches the parent alone.
When the parent leaves or dies in any way, the child ends with its programs.

The child is started before the client is imported, so that both start at the same time.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias

from wakugumi.adapters.machine.usable_cpus import usable_cpus
from wakugumi.errors import ConfigError, Refused

if TYPE_CHECKING:
    from wakugumi.adapters.net.link import Link, LinkOwner
    from wakugumi.roles.client.blocking import Client
    from wakugumi.roles.client.grid import Grid

START_DEADLINE_S: Final = 30.0
"""Time from the start to a leader that serves: usually a tenth of a second, much more on a busy machine."""
STOP_DEADLINE_S: Final = 5.0
"""Time for programs to end with grace and their directories to be removed; then the child is killed."""
_TAIL_BYTES: Final = 4096
"""Bytes of the child's stderr that an error message quotes."""
_BEGIN: Final = (
    "import sys; sys.path[:] = sys.argv[1].split('\\n'); from wakugumi.roles.local.child import main; main(sys.argv[2])"
)

Programs: TypeAlias = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None
"""A folder of programs, or paths by name, or None for the programs on the PATH."""


def local(
    slots: int | None = None,
    *,
    programs: Programs = None,
    jobs: str | os.PathLike[str] | None = None,
    cap: int | None = None,
    client_id: str | None = None,
) -> Local:
    """An embedded grid, for `with` (a Client) or `async with` (a Grid).

    `slots` programs run at once [default: the number of CPUs]. `programs` is a folder, a mapping of names to paths, or
    None for all programs on the PATH. `jobs` is the folder for the directories of jobs [default: a temporary folder,
    removed at the end]. Raises ConfigError.
    """
    if slots is None:
        slots = usable_cpus()
    if not 1 <= slots <= 4096:
        raise ConfigError(f"an embedded grid runs 1 to 4096 jobs at once, not {slots}")
    folder, named = _programs(programs)
    settings: dict[str, object] = {
        "slots": slots,
        "folder": folder,
        "named": named,
        "from_path": programs is None,
        "jobs": None if jobs is None else os.path.abspath(jobs),
    }
    return Local(settings, cap=max(2 * slots, 64) if cap is None else cap, client_id=client_id)


class Local:
    """Result of `local`. Each `with` starts a grid of its own."""

    def __init__(self, settings: dict[str, object], *, cap: int, client_id: str | None) -> None:
        self._settings = settings
        self._cap = cap
        self._client_id = client_id
        self._begun: GridChild | None = None
        self._client: Client | None = None
        self._grid: AbstractAsyncContextManager[Grid] | None = None

    def begin(self) -> None:
        """Starts the child early. The next `with` uses it."""
        if self._begun is None:
            self._begun = GridChild(self._settings)

    def drop(self) -> None:
        """Ends a child that was started early and is not needed."""
        if self._begun is not None:
            self._begun.let_go()
            self._begun = None

    def is_like(self, other: Local) -> bool:
        """Could the other's child be used instead?"""
        return self._settings == other._settings

    def __enter__(self) -> Client:
        child = self._take()
        from wakugumi.roles.client.blocking import Client

        self._client = Client.over(lambda: self._open(child))
        return self._client

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        self._client.close()

    async def __aenter__(self) -> Grid:
        self._grid = self._open(self._take())
        return await self._grid.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._grid is not None
        return await self._grid.__aexit__(kind, error, trace)

    def _take(self) -> GridChild:
        child, self._begun = self._begun or GridChild(self._settings), None
        return child

    @asynccontextmanager
    async def _open(self, child: GridChild) -> AsyncIterator[Grid]:
        from wakugumi.roles.client.grid import Grid
        from wakugumi.roles.client.identity import default_client_id
        from wakugumi.roles.client.session.leader_status import Endpoint

        try:
            child.listen_to_stderr()
            client_id = self._client_id or default_client_id()
            # An embedded grid has no heartbeats: after an hour suspended with Ctrl-Z, all goes on as before.
            here = Endpoint("the embedded grid", lambda owner, _access: child.dial(owner))
            grid = Grid([here], client_id=client_id, cap=self._cap, embedded=True)
            try:
                await grid.served(START_DEADLINE_S)
                yield grid
            finally:
                await grid.close()
        finally:
            await child.stop()


class GridChild:
    """The process with the leader and the worker."""

    def __init__(self, settings: dict[str, object]) -> None:
        self._temporary = "" if settings["jobs"] else _temporary_folder()
        self._socket, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._stderr, stderr = os.pipe()
        self._last_words = b""
        self._dialled = False
        fds = (theirs.fileno(), lifeline)
        settings = {
            **settings,
            "jobs": settings["jobs"] or self._temporary,
            "is_temporary": bool(self._temporary),
            "socket": fds[0],
            "lifeline": fds[1],
            "parent": os.getpid(),
        }
        command = [sys.executable, "-I", "-S", "-c", _BEGIN, "\n".join(_import_path()), json.dumps(settings)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=fds,
                start_new_session=True,
            )
        except OSError as error:
            self._close_ours()
            self._remove_temporary()
            raise ConfigError(f"the embedded grid cannot be started: {error}") from None
        finally:
            theirs.close()
            os.close(lifeline)
            os.close(stderr)

    async def dial(self, owner: LinkOwner) -> Link:
        """The child's socket, once. Raises Refused: a grid that has died stays dead, and the message quotes its
        stderr."""
        from wakugumi.adapters.net.connect import adopt

        if not self._dialled:
            self._dialled = True
            return await adopt(self._socket, owner, trusted=True)
        code = await self._exit_code()
        self._listen()
        words = self._last_words.decode(errors="replace").strip()
        raise Refused("no-leader", f"the embedded grid died (exit code {code}){': ' if words else ''}{words}", hint="")

    def listen_to_stderr(self) -> None:
        import asyncio

        os.set_blocking(self._stderr, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._stderr, self._listen)

    def let_go(self) -> None:
        """The child ends by itself, without waiting. For a child that was never dialled."""
        self._close_ours()
        self._process.returncode = 0  # The destructor must not warn that the process still runs.

    async def stop(self) -> None:
        """Closes the lifeline, and waits until the child is gone."""
        os.close(self._lifeline)
        self._lifeline = -1
        if await self._exit_code() is None:
            self._process.kill()
            await self._exit_code()
        self._loop.remove_reader(self._stderr)
        self._close_ours()
        self._remove_temporary()

    async def _exit_code(self) -> int | None:
        """None if the child does not end. `Popen.wait` would poll twenty times a second, which is slower."""
        import asyncio

        ended = asyncio.Event()
        try:
            pidfd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # Another system, or the child was reaped elsewhere.
            return await asyncio.to_thread(self._wait)
        self._loop.add_reader(pidfd, ended.set)
        try:
            async with asyncio.timeout(STOP_DEADLINE_S):
                await ended.wait()
        except TimeoutError:
            return None
        finally:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
        return self._process.wait()

    def _wait(self) -> int | None:
        try:
            return self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            return None

    def _listen(self) -> None:
        """Reads the child's stderr, for a full pipe would stop the child, and keeps the end."""
        try:
            while data := os.read(self._stderr, 65536):
                self._last_words = (self._last_words + data)[-_TAIL_BYTES:]
            self._loop.remove_reader(self._stderr)
        except BlockingIOError:
            pass

    def _remove_temporary(self) -> None:
        """Nearly always gone: only a child that was killed could not remove it."""
        if os.path.isdir(self._temporary):
            from shutil import rmtree

            from wakugumi.roles.local.leftovers import end_abandoned

            end_abandoned(self._temporary)
            rmtree(self._temporary, ignore_errors=True)

    def _close_ours(self) -> None:
        self._socket.close()
        for file in (self._lifeline, self._stderr):
            if file >= 0:
                os.close(file)


def _programs(programs: Programs) -> tuple[str | None, dict[str, str]]:
    if programs is None:
        return None, {}
    if isinstance(programs, Mapping):
        named = {name: os.path.abspath(path) for name, path in programs.items()}
        for name, path in named.items():
            if not os.path.isfile(path):
                raise ConfigError(f"the program {name!r} is not there: {path} is no file")
        return None, named
    folder = os.path.abspath(programs)
    if not os.path.isdir(folder):
        raise ConfigError(f"the programs are not there: {folder} is no folder")
    return folder, {}


def _temporary_folder() -> str:
    # Like `tempfile`, which takes longer to import than this takes to run.
    for base in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "."):  # noqa: S108 - the name is random, the mode 700
        if base:
            path = os.path.join(os.path.abspath(base), f"waku-{os.urandom(8).hex()}")
            with suppress(OSError):
                os.mkdir(path, 0o700)
                return path
    raise ConfigError("there is no folder for the directories of jobs", "name one with jobs=")


def _import_path() -> list[str]:
    """The child finds modules where the parent does, without reading the environment or starting `site`."""
    own = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    return [own, *(path for path in sys.path if path and path != own)]
