"""Does work of a gateway go on whatever fails, and is a failure told?"""

from __future__ import annotations

import pytest
from tests.kit.gateway_desk import GatewayDesk

from wakugumi.core.gateway import events as ev
from wakugumi.core.step import ERROR, WARNING, LogLine
from wakugumi.errors import Refused


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [(Refused("busy", "locked"), WARNING, "no work: locked"), (KeyError("unforeseen"), ERROR, "no work")],
)
def test_work_that_fails_is_told_and_done_again(error: Exception, level: int, text: str) -> None:
    desk, times = GatewayDesk(), []

    async def work() -> None:
        times.append(desk.now)
        if len(times) <= 2:
            raise error

    desk.machine.state.start_often(work, 30.0, "no work")
    desk.hear()
    desk.wait(70.0)
    assert [at - 1_000.0 for at in times] == [0.0, 1.0, 2.0, 32.0, 62.0]
    assert [(line.level, line.text) for line in desk.effects_of(LogLine)] == [(level, text)] * 2


def test_a_flow_that_fails_ends_alone() -> None:
    desk, ended = GatewayDesk(), []

    async def fails() -> None:
        raise KeyError("unforeseen")

    async def works() -> None:
        ended.append(True)

    desk.machine.state.start(fails, "fails")
    desk.machine.state.start(works, "works")
    desk.hear()
    assert ended == [True]
    (line,) = desk.effects_of(LogLine)
    assert (line.level, line.text) == (ERROR, "flow failed flow='fails'")


def test_files_without_a_name_are_none() -> None:
    desk = GatewayDesk()
    desk.machine.state.drop_files(set())
    desk.machine.state.drop_files({"b", "a"})
    desk.hear()
    assert desk.effects == [ev.DropFiles(("a", "b"))]
