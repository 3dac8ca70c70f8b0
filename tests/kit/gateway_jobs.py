"""Jobs and answers for a `GatewayDesk`: what a client sends, and what a group says to it."""

from __future__ import annotations

from typing import Any

from tests.kit.gateway_desk import GatewayDesk

from wakugumi.core.access.identity import Sight
from wakugumi.core.flows import ActFailed, Answered
from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.rows import DIGEST_FORM, Content
from wakugumi.core.ids import HTTP_CLIENT, JobId, job_id_from_name
from wakugumi.errors import Lost

NAME = "monday"
JOB: JobId = job_id_from_name(NAME)
DIGEST = f"{DIGEST_FORM}input"


def submit(
    desk: GatewayDesk,
    request: int,
    *,
    name: str = NAME,
    is_async: bool = False,
    content: bytes = b"input",
    is_short: bool = False,
    has_arrived: bool = False,
    client: str = HTTP_CLIENT,
    sight: Sight | None = None,
) -> None:
    """A client sends a job with a small body, which may have arrived with the head of its request."""
    received = ev.BodyReceived(True, len(content), DIGEST_FORM + content.decode())
    desk.answers |= {
        ev.BeginBody: lambda _: received,
        ev.FinishBody: lambda _: received,
        ev.KeepBody: lambda _: Content(len(content), content),
        ev.OpenAnswer: lambda act: isinstance(act.body, Content),
    }
    here = received if has_arrived else None
    job, size = job_id_from_name(name), len(content)
    desk.hear(ev.JobSubmitted(request, job, name, is_async, "", "", {}, 60.0, size, is_short, here, client, sight))


def ask(desk: GatewayDesk, request: int, question: str, name: str = NAME, sight: Sight | None = None) -> None:
    desk.hear(ev.JobAsked(request, job_id_from_name(name), name, question, sight))


def answer_group(desk: GatewayDesk, content: bytes = b"PK", *, status: int = 200, code: str = "") -> None:
    """The group answers the oldest job that it has."""
    number = first_dispatch(desk)
    act = desk.unanswered.pop(number)
    assert isinstance(act, ev.Dispatch)
    desk.hear(ev.HeadCame(act.number))
    if status == 200:
        head = {"Waku-Status": "OK"}
        reply = ev.GroupReply(200, head, len(content), content=Content(len(content), content))
    else:
        reply = ev.GroupReply(status, {}, None, None, code, f"it is {code}")
    desk.hear(Answered(number, reply))


def lose_group(desk: GatewayDesk, why: str) -> None:
    """The connection of the oldest job is lost."""
    number = first_dispatch(desk)
    del desk.unanswered[number]
    desk.hear(ActFailed(number, Lost("the connection ended", why)))


def first_dispatch(desk: GatewayDesk) -> int:
    return next(number for number, act in desk.unanswered.items() if isinstance(act, ev.Dispatch))


def get_answer(desk: GatewayDesk, request: int) -> Any:
    (answer,) = [effect.answer for effect in desk.effects_of(ev.ReplyTo) if effect.request == request]
    return answer
