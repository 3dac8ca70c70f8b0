"""What do all parts of a node's machine share?"""

from __future__ import annotations

from wakugumi.core.leader.nodes.state import NodeState
from wakugumi.core.step import WARNING, LogLine


def test_effects_and_log_lines_go_out_in_order() -> None:
    state = NodeState("http://node", lambda: 0.5, 1.0)
    error = ValueError()
    state.log(WARNING, "first")
    state.log(WARNING, "second", error)
    assert state.flows.run(1.0) == [LogLine(WARNING, "first"), LogLine(WARNING, "second", error)]
