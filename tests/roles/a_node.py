"""A node to call, in this process: real programs, real ports, and at the end all of its slots are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from wakugumi.adapters.command import parse_command
from wakugumi.adapters.net import Address
from wakugumi.adapters.process import Programs
from wakugumi.roles.node import Node
from wakugumi.roles.node_ports import NodePorts, listen
from wakugumi.roles.station import Station

DEADLINE_S = 20.0
HERE = Address("127.0.0.1", 0)


class ANode(NamedTuple):
    node: Node
    ports: NodePorts
    folder: Path
    """Holds `bin`, `jobs`, `runs` (a line for each run) and, once it is there, `gate`."""

    @property
    def http(self) -> int:
        assert self.ports.http is not None
        return self.ports.http.port

    @property
    def lines(self) -> int:
        assert self.ports.lines is not None
        return self.ports.lines.port

    @property
    def runs(self) -> int:
        runs = self.folder / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    async def until(self, what: str) -> None:
        """Until this holds, as Python sees it of the node."""
        async with asyncio.timeout(DEADLINE_S):
            while not eval(what, {}, {"node": self.node, "station": self.node.station}):
                await asyncio.sleep(0.005)

    async def all_free(self) -> None:
        """Nothing runs, nothing is received, nobody waits, and nothing is left of what was received."""
        await self.until("(station.running, station.free, node.receiving, node.answering) == (0, station.limit, 0, 0)")
        assert left_in(self.node.folder) == []


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def make_programs(folder: Path) -> Path:
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    runs = f'echo run >> "{folder}/runs"'
    for name, script in {
        "copy": f'{runs}; wc -c < "$1"; cp "$1" copied; echo warned >&2',
        "fail": f"{runs}; echo why >&2; exit 3",
        "wait": f'{runs}; while [ ! -e "{folder}/gate" ]; do sleep 0.01; done; cat "$1"',
        "large": f"{runs}; head -c 20000000 /dev/urandom > made; echo large",
        "args": f'{runs}; for word in "$@"; do echo "$word"; done',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    return programs


@asynccontextmanager
async def a_node(
    folder: Path, command: str = "copy", *, slots: int = 2, one_port: bool = False, tls: Any = None, **settings: Any
) -> AsyncIterator[ANode]:
    """Its slots are counted to zero when all callers are gone."""
    programs = Programs(make_programs(folder), default=parse_command(command) if command else None)
    station = Station(None, programs, folder / "jobs", slots=slots, cpu_cap=None, done_ttl_s=600.0)
    node = Node(station, **settings)
    ports = await listen(node, HERE, HERE, tls, one_port=one_port)
    serving = asyncio.get_running_loop().create_task(station.serve(), name="node under test")
    made = ANode(node, ports, folder)
    try:
        yield made
        made.open_gate()
        await made.all_free()
    finally:
        station.request_stop()
        station.request_stop()
        async with asyncio.timeout(DEADLINE_S):
            await serving
        ports.hurry()
        await ports.close()
