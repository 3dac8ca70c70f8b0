"""`waku up --groups G --nodes N`: the three tiers on this machine, for a try-out, until you stop them.

All of them are processes below this one. One that ends is told of, and the others go on: that is what a try-out is for.
The first SIGTERM or Ctrl-C lets what runs finish, from the gateway down; the second ends all at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import subprocess
import sys
from time import monotonic
from typing import Final

from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.signals import on_stop_signals
from wakugumi.adapters.programs.process_tree import kill_with_all_below
from wakugumi.app.serve.guarded import guarded
from wakugumi.app.serve.tiers import GATEWAY, GROUPS_MAX, NODES_MAX, TierProcess, Tiers, parts_of
from wakugumi.app.show.output import line_out, one, say
from wakugumi.errors import ConfigError
from wakugumi.limits.wire import DRAIN_DEADLINE_S

log = logging.getLogger("wakugumi.app")

_START_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.1


def up_tiers(tiers: Tiers, port: int, log_level: str) -> int:
    """Start them all, say where, and stay until told to stop. Returns the exit code; raises ConfigError."""
    for word, value, most in (("groups", tiers.groups, GROUPS_MAX), ("nodes", tiers.nodes, NODES_MAX)):
        if not 1 <= value <= most:
            raise ConfigError(f"--{word} is 1 to {most}, not {value}")
    return guarded(lambda: run(_Up(tiers, port, log_level).stay()))


class _Up:
    """All processes, from their start to their end."""

    def __init__(self, tiers: Tiers, port: int, log_level: str) -> None:
        self._tiers = tiers
        self._parts = parts_of(tiers, port)
        self._log_level = log_level
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._asked = 0

    async def stay(self) -> int:
        on_stop_signals(asyncio.get_running_loop(), self._ask)
        try:
            for part in self._parts:  # All at once: whoever asks another one finds it as soon as it is there.
                self._processes[part.name] = _begin(part, self._log_level)
            for part in self._parts:
                await self._listens(part)
                if self._asked:
                    return 0
            self._say_how()
            while not self._asked:
                self._look()
                await asyncio.sleep(_LOOK_EVERY_S)
            await self._drain()
        finally:
            kill_with_all_below([process.pid for process in self._processes.values() if process.poll() is None])
            for process in self._processes.values():
                process.wait()
        return 0

    def _ask(self) -> None:
        self._asked += 1

    async def _listens(self, part: TierProcess) -> None:
        """Returns when it does. Raises ConfigError if it does not."""
        process = self._processes[part.name]
        assert process.stdout is not None
        until = monotonic() + _START_WITHIN_S
        while not _has_spoken(process):
            if self._asked:
                return
            if monotonic() > until:
                raise ConfigError(f"{part.name} did not listen within {_START_WITHIN_S:g} s")
            await asyncio.sleep(_LOOK_EVERY_S / 10)
        if not os.read(process.stdout.fileno(), 4096):
            raise ConfigError(f"{part.name} cannot be started: its last words are above")

    def _look(self) -> None:
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                del self._processes[name]
                say(f"{name} has ended ({_how(process.returncode)}); the others go on")

    async def _drain(self) -> None:
        """The gateway ends first, then leaders, then nodes: jobs already sent on can still finish."""
        say("draining: running jobs may finish; ask again to stop at once")
        until = monotonic() + DRAIN_DEADLINE_S
        for kind in dict.fromkeys(part.kind for part in reversed(self._parts)):
            names = [part.name for part in self._parts if part.kind == kind]
            going = [self._processes[name] for name in names if name in self._processes]
            for process in going:
                process.send_signal(signal.SIGTERM)
            while any(process.poll() is None for process in going):
                if self._asked > 1 or monotonic() > until:
                    return
                await asyncio.sleep(_LOOK_EVERY_S)

    def _say_how(self) -> None:
        tiers, gateway = self._tiers, self._parts[-1]
        assert gateway.kind == GATEWAY
        line_out(gateway.url.partition("//")[2], flush=True)
        say(
            f"a gateway, {one(tiers.groups, 'group')} and {one(tiers.groups * tiers.nodes, 'node')} "
            f"with {one(tiers.slots, 'slot')} each are up:"
        )
        for part in reversed(self._parts):
            say(f"    {part.name:<12} {part.url}   pid {self._processes[part.name].pid}")
        query = "" if tiers.program else "?program=PROGRAM"
        say("use them from another terminal:")
        say(f"    curl -F file=@INPUT '{gateway.url}/submit/my-job{query}' -o result.zip")
        say(f"    curl {gateway.url}/status/my-job")


def _begin(part: TierProcess, log_level: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "wakugumi", *part.words, "--log-level", log_level],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C is for us: we let them end in their order
    )


def _has_spoken(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
