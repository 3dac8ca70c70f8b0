"""What do all parts of a node's machine share? Flows, the node's place in the leader, and the way out."""

from __future__ import annotations

from collections.abc import Callable

from wakugumi.core.flows import Flows
from wakugumi.core.ids import ConnId
from wakugumi.core.leader.nodes.events import NodeDo
from wakugumi.core.step import LogLine


class NodeState:
    """Shared by the parts of one node's machine."""

    def __init__(self, url: str, chance: Callable[[], float], now: float) -> None:
        self.url = url
        self.chance = chance
        self.flows = Flows(now)
        self.conn = ConnId(0)
        """The node's connection at the leader's machine."""

    def emit(self, effect: NodeDo) -> None:
        self.flows.emit(effect)

    def log(self, level: int, text: str, error: Exception | None = None) -> None:
        self.flows.emit(LogLine(level, text, error))
