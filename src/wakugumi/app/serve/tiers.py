"""What are the three tiers on one machine? A gateway, groups with a leader each, and nodes that their leader knows.

    gateway ──► group-1 ──► node-1-1, node-1-2 …
            └─► group-2 ──► node-2-1, node-2-2 …

Each is a process of its own with a port that it keeps when it is started again: `waku up --groups` starts them once,
`waku drill --groups` kills them and brings them back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.app.serve.free_ports import HOST, free_ports

GATEWAY: Final = "gateway"
GROUP: Final = "group"
NODE: Final = "node"
GROUPS_MAX: Final = 16
NODES_MAX: Final = 32
"""Groups, and nodes of each: more than one machine is good for."""


class TierProcess(NamedTuple):
    """One process of the three tiers."""

    name: str
    kind: str
    group: int
    """From 1 on; 0 for the gateway."""
    url: str
    words: tuple[str, ...]
    """The command line after `waku`."""


class Tiers(NamedTuple):
    """How many of each, and what they run."""

    groups: int
    nodes: int
    """Of each group."""
    slots: int
    programs: Path
    program: str
    """Of jobs that name none; empty: each has to."""
    state: Path
    """The folder in which each has its own."""
    node_words: tuple[str, ...] = ()
    """Further flags of each node."""


def parts_of(tiers: Tiers, port: int = 0) -> list[TierProcess]:
    """All processes in the order of their start: a server before its clients."""
    ports = iter(free_ports(1 + tiers.groups * (1 + tiers.nodes)))
    named = ("--program", tiers.program) if tiers.program else ()
    parts = [
        _node(tiers, f"{NODE}-{group}-{number}", group, next(ports), named)
        for group in range(1, tiers.groups + 1)
        for number in range(1, tiers.nodes + 1)
    ]
    leaders = [_leader(tiers, group, next(ports), parts, named) for group in range(1, tiers.groups + 1)]
    said = [word for leader in leaders for word in ("--group", f"{leader.name}={leader.url}")]
    there = port or next(ports)
    words = ("gateway", str(there), *said, "--state", str(tiers.state / GATEWAY))
    return [*parts, *leaders, TierProcess(GATEWAY, GATEWAY, 0, _url(there), words)]


def _node(tiers: Tiers, name: str, group: int, port: int, named: tuple[str, ...]) -> TierProcess:
    where = ("--http", str(port), "--lines", str(port))
    folders = ("--programs", str(tiers.programs), "--jobs", str(tiers.state / name))
    slots = ("--slots", str(tiers.slots))
    return TierProcess(name, NODE, group, _url(port), ("node", *named, *where, *folders, *slots, *tiers.node_words))


def _leader(tiers: Tiers, group: int, port: int, nodes: list[TierProcess], named: tuple[str, ...]) -> TierProcess:
    name = f"{GROUP}-{group}"
    mine = [word for node in nodes if node.group == group for word in ("--node", f"{node.url},name={node.name}")]
    words = ("leader", str(port), "--state", str(tiers.state / name), *mine, *named)
    return TierProcess(name, GROUP, group, _url(port), words)


def _url(port: int) -> str:
    return f"http://{HOST}:{port}"
