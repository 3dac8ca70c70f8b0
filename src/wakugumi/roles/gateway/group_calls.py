"""How does a gateway talk to its groups? Over HTTP: jobs, their answers, polls and cancels.

A try (`core/gateway/tries.py`) is one connection with the answer that is being received. It is open until the machine
closes it; requests may read its answer while it grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.spool import Spool, SpoolReader, Spools
from wakugumi.core.gateway.events import Dispatch, GroupReply, HeadCame, NoBodyLost
from wakugumi.core.gateway.groups import Capacity, Groups
from wakugumi.core.gateway.rows import Content, InputAt
from wakugumi.errors import Lost, Refused
from wakugumi.limits.gateway import GROUP_ANSWER_S
from wakugumi.limits.runner import RESULT_BYTES_MAX
from wakugumi.roles.gateway.form import path_beside_file
from wakugumi.roles.gateway.sent_file import FilePieces, OtherSizeLost, file_in
from wakugumi.roles.http.peer_answers import ANSWER_BYTES_MAX, ask_capacity, refusal_in
from wakugumi.wire.messages.envelope import JOB, JOB_TYPE, TAKES, taken

if TYPE_CHECKING:
    from wakugumi.adapters.http.client import HttpAnswer

ANSWER_HEADERS: Final = {
    name.lower().encode(): name
    for name in (
        *("Content-Type", "Content-Disposition", "Waku-Job", "Waku-Status", "Waku-Exit-Code", "Waku-Reason"),
        *("Waku-Run-Seconds", "Waku-Worker", "Waku-Unpacked-Bytes", "Waku-Left-Out"),
    )
}
"""Headers of an answer that are kept, by their names in lower case."""


class _OpenTry:
    """One job at one group."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.moved_at = clock()
        self.body: _Sent | None = None
        self.answer: HttpAnswer | None = None
        self.spool: Spool | None = None
        self.pieces: AsyncIterator[bytes] | None = None

    def moved(self) -> None:
        self.moved_at = self._clock()

    async def received(self, answer: HttpAnswer) -> AsyncIterator[bytes]:
        async for piece in answer.pieces():
            self.moved()
            yield piece

    def close(self) -> None:
        for part in (self.body, self.answer, self.spool):
            if part is not None:
                part.close()


class _Sent:
    """A body on its way; keeps the error if reading it failed."""

    def __init__(self, pieces: SpoolReader | FilePieces, moved: Callable[[], None]) -> None:
        self._pieces = pieces
        self._moved = moved
        self.failure: Exception | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._pieces:
                self._moved()
                yield piece
        except (Lost, Refused) as error:
            self.failure = None if isinstance(error, OtherSizeLost) else error
            raise

    def close(self) -> None:
        self._pieces.close()


class GroupCalls:
    """A gateway's connections. Make it inside a running loop, and close it."""

    def __init__(
        self,
        groups: Groups,
        spools: Spools,
        head_came: Callable[[HeadCame], None],
        *,
        connect_s: float = GROUP_ANSWER_S,
        access: AccessSources | None = None,
    ) -> None:
        from wakugumi.adapters.http.client import HttpClient

        self.groups = groups
        self._spools = spools
        self._head_came = head_came
        self._calls = HttpClient(connect_s=connect_s, access=access)
        self._asking = HttpClient(connect_s=connect_s, access=access)
        """For requests that must not wait behind a thousand jobs."""
        self._open: dict[int, _OpenTry] = {}
        self._held: dict[int, Spool] = {}
        """Answers of closed tries whose readers wait for the last byte."""
        self._clock = asyncio.get_running_loop().time

    async def dispatch(
        self, act: Dispatch, body: bytes | SpoolReader, known: Callable[[], InputAt | None]
    ) -> GroupReply:
        """`known` returns the place of the file that is sent without its form; None: the form is sent. Raises Lost."""
        one = self._open[act.number] = _OpenTry(self._clock)
        path, headers, size = act.path, act.headers, act.size
        sent: bytes | SpoolReader | FilePieces = body
        if (found := known()) is not None:
            path = path_beside_file(path)
            headers = headers | {"Content-Type": JOB_TYPE}
            sent = file_in(body, found) if isinstance(body, bytes) else FilePieces(body, found, known)
            size = len(sent) if isinstance(sent, bytes) else sent.size
        if size is not None:
            headers = headers | {"Content-Length": str(size)}
        outgoing: bytes | AsyncIterator[bytes]
        if isinstance(sent, bytes):
            outgoing = sent
        else:
            one.body = _Sent(sent, one.moved)
            outgoing = aiter(one.body)
        try:
            url = self.groups.by_name[act.group].url + path
            answer = one.answer = await self._calls.send("POST", url, headers=headers, body=outgoing)
        except Lost:
            if one.body is not None and one.body.failure is not None:
                raise NoBodyLost(str(one.body.failure)) from None
            raise
        one.moved()
        if not answer.is_here:
            self._head_came(HeadCame(act.number))
        if answer.status != 200:
            problem, again_s, takes_files = await refusal_in(answer)
            said = problem.code, problem.detail, problem.hint
            return GroupReply(answer.status, {}, None, again_s, *said, takes_files=takes_files)
        head = answer.headers_of(ANSWER_HEADERS)
        spool = one.spool = self._spools.new(RESULT_BYTES_MAX, is_answer=True)
        spool.is_held = True
        one.pieces = one.received(answer)
        with spool.in_use():
            await spool.begin(one.pieces)
        if (data := spool.data) is not None:
            spool.is_held = False
        content = None if data is None else Content(len(data), data)
        return GroupReply(200, head, answer.size, content=content)

    async def finish(self, number: int) -> int:
        """Receives the rest of an answer, and returns its size. Raises Lost."""
        one = self._open[number]
        assert one.spool is not None
        assert one.pieces is not None
        with one.spool.in_use():
            await one.spool.fill(one.pieces)
        return one.spool.size

    def spool(self, number: int) -> Spool:
        """The answer of a try. Raises Lost."""
        one = self._open.get(number)
        spool = self._held.get(number) if one is None else one.spool
        if spool is None:
            raise Lost("the answer was received, or given up")
        return spool

    def release(self, number: int, *, is_kept: bool) -> None:
        """Readers of the answer get its last byte, or are cut off."""
        with suppress(Lost):
            self.spool(number).release(None if is_kept else Lost("the answer was not stored"))
        if (spool := self._held.pop(number, None)) is not None:
            spool.close()

    def since_moved(self, number: int) -> float:
        one = self._open.get(number)
        return 0.0 if one is None else self._clock() - one.moved_at

    def close_try(self, number: int) -> None:
        if (one := self._open.pop(number, None)) is None:
            return
        if one.spool is not None and one.spool.is_whole and one.spool.is_held:
            self._held[number], one.spool = one.spool, None
        one.close()

    async def cancel(self, group: str, job: str) -> None:
        """Raises Lost."""
        async with self._asking.call("DELETE", f"{self.groups.by_name[group].url}/jobs/{job}") as answer:
            await answer.read(ANSWER_BYTES_MAX)

    async def poll(self, group: str) -> Capacity:
        """Raises Lost, or PeerError for an answer that is none."""
        said, answer = await ask_capacity(self._asking, self.groups.by_name[group].url)
        free = max(0, said.limit - said.running) if said.free is None else said.free
        return Capacity(said.running, said.limit, said.queued, free, JOB in taken(answer.header(TAKES)))

    async def close(self) -> None:
        for number in list(self._open):
            self.close_try(number)
        for number in list(self._held):
            self.release(number, is_kept=False)
        await self._calls.close()
        await self._asking.close()
