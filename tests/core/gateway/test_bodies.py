"""Is a body received once, and dropped with its last user?"""

from __future__ import annotations

import pytest
from tests.kit.gateway_desk import GatewayDesk

from wakugumi.core.flows import Answered
from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.bodies import Body
from wakugumi.errors import Lost, Refused

WHOLE = ev.BodyReceived(True, 9, "2:digest")


@pytest.fixture
def desk() -> GatewayDesk:
    desk = GatewayDesk()
    desk.answers[ev.FinishBody] = lambda _: WHOLE
    return desk


def test_the_rest_is_received_once_for_all_who_wait(desk: GatewayDesk) -> None:
    body = Body(desk.machine.state, 1, None)
    body.received(ev.BodyReceived(False, 5))
    assert not body.is_whole
    desk.run(body.whole)
    desk.run(body.whole)
    assert (body.is_whole, body.size, body.digest) == (True, 9, "2:digest")
    assert desk.asked_for(ev.FinishBody) == [ev.FinishBody(1)]


def test_a_body_that_fails_is_told_to_all_who_wait(desk: GatewayDesk) -> None:
    def fail(_: ev.FinishBody) -> object:
        raise Refused("too-big", "more than it may")

    desk.answers[ev.FinishBody] = fail
    body = Body(desk.machine.state, 1, None)
    for _ in range(2):
        with pytest.raises(Refused):
            desk.run(body.whole)


def test_a_body_goes_with_its_last_user(desk: GatewayDesk) -> None:
    body = Body(desk.machine.state, 7, 9)
    body.share()
    desk.run(lambda: _do(body.stop))
    assert desk.effects_of(ev.DropBody) == []
    desk.run(lambda: _do(body.close))
    assert desk.effects_of(ev.DropBody) == [ev.DropBody(7)]


def test_the_end_of_a_request_ends_its_body(desk: GatewayDesk) -> None:
    desk.never.add(ev.FinishBody)
    body = Body(desk.machine.state, 1, 9)
    body.share()
    desk.run(lambda: _do(body.fill))
    (number,) = desk.unanswered
    desk.run(lambda: _do(body.stop))
    assert desk.unanswered == {}
    desk.hear(Answered(number, WHOLE))
    with pytest.raises(Lost):
        desk.run(body.whole)


async def _do(call: object) -> None:
    assert callable(call)
    call()
