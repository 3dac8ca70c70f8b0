"""Which kinds of worlds are there? One line each; the command line, the report, the search for planted bugs and the
tests follow from it.

A world is made from a seed and `run`: it returns what it counted, or raises Broken. Counts of every kind are `worlds`,
`jobs` and `virtual seconds`; `fault: …` and `met: …` (a fault that met work in flight) name the role first.
"""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Final, NamedTuple, Protocol

from tests.sim.story import Story


class SimWorld(Protocol):
    """A world of any kind."""

    story: Story | None

    def __init__(self, seed: int, *, story: Story | None = None) -> None: ...

    def run(self) -> Counter[str]: ...


class Kind(NamedTuple):
    name: str
    module: str
    world: str
    core: tuple[str, ...]
    """Files of the core whose planted bugs these worlds find, by the beginning of their names; the longest counts."""

    def load(self) -> type[SimWorld]:
        world: type[SimWorld] = getattr(importlib.import_module(f"tests.sim.{self.module}"), self.world)
        return world


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("leaders", "world", "World", ("",)),
        Kind("gateways", "gateways.world", "GatewayWorld", ("gateway/", "flows")),
        Kind("transfers", "transfers.world", "TransferWorld", ("transfers/",)),
        Kind("fetching", "fetching.world", "FetchWorld", ("transfers/fetch", "files/source")),
        Kind("downloads", "downloads.world", "DownloadWorld", ("transfers/downloads",)),
        Kind(
            "lines",
            "lines.world",
            "LineWorld",
            ("connections/line", "connections/pace", "connections/receive_slots", "node/"),
        ),
        Kind("callers", "callers.world", "CallersWorld", ("leader/callers/",)),
        Kind("groups", "groups.world", "GroupWorld", ()),
        Kind("nodes", "nodes.world", "NodeWorld", ("leader/nodes/", "connections/answer_pace")),
    )
}


def kind_of(file: str) -> Kind:
    """The worlds that find bugs in this file of the core."""
    found = [(len(begin), kind) for kind in KINDS.values() for begin in kind.core if file.startswith(begin)]
    return max(found, key=lambda row: row[0])[1]
