"""How does a gateway speak with its groups? It polls each for its capacity, and those who wait at one that is gone, or
deserted, are told to leave.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from wakugumi.adapters.tasks import Tasks
from wakugumi.core.groups import Capacity, Groups
from wakugumi.errors import Lost
from wakugumi.limits import GROUP_ANSWER_S, GROUP_POLL_S, KIB

if TYPE_CHECKING:
    from wakugumi.adapters.calls import Answer

log = logging.getLogger("wakugumi.gateway")

_SAID_BYTES_MAX: Final = 64 * KIB


_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class _Said(msgspec.Struct):
    """The answer to a poll; a node has no queue, and says only two of these."""

    running: _Count
    limit: _Count
    queued: _Count = 0
    free: _Count | None = None


_decode: Final = msgspec.json.Decoder(_Said).decode


class GroupCalls:
    """A gateway's connections. Make it inside a running loop, and close it."""

    def __init__(self, groups: Groups, *, poll_s: float = GROUP_POLL_S, answer_s: float = GROUP_ANSWER_S) -> None:
        from wakugumi.adapters.calls import Calls

        self.groups = groups
        self._poll_s = poll_s
        self._answer_s = answer_s
        self._calls = Calls(connect_s=answer_s)
        self._asking = Calls(connect_s=answer_s)
        """For what must not wait behind a thousand jobs."""
        self._waiting: dict[str, dict[asyncio.Timeout, float]] = {name: {} for name in groups.by_name}
        """Who waits at which group, and since when."""
        self._tasks = Tasks()
        self._clock: Callable[[], float] = asyncio.get_running_loop().time

    def start(self) -> None:
        for name in self.groups.by_name:
            self._tasks.start(self._poll(name), name=f"poll {name}")

    def order(self, key: str) -> list[str]:
        return self.groups.order(key, self._clock())

    def failed(self, name: str, why: object) -> None:
        log.warning("the group %s failed: %s", name, why)
        self.groups.failed(name, self._clock(), random.random())

    def was_full(self, name: str, again_s: float) -> None:
        self.groups.was_full(name, self._clock(), again_s)

    @asynccontextmanager
    async def dispatch(
        self, name: str, path: str, headers: Mapping[str, str], body: bytes | AsyncIterator[bytes]
    ) -> AsyncIterator[Answer]:
        """Send a job there, and get the head of the answer, which may take as long as the job. Raises Lost, with `left`
        as its reason if the group is deserted."""
        url = self.groups.by_name[name].url + path
        self.groups.sent(name)
        try:
            async with asyncio.timeout(None) as until:
                with self._at(name, until):
                    async with self._calls.call("POST", url, headers=headers, body=body) as answer:
                        yield answer
        except TimeoutError:
            if self.groups.is_gone(name):
                raise Lost(f"{url} answers no more", "slow") from None
            raise Lost(f"{url} has had no workers for long", "left") from None

    async def cancel(self, name: str, job: str) -> None:
        """Nobody wants the job any more: best effort."""
        url = f"{self.groups.by_name[name].url}/jobs/{job}"
        with suppress(Lost, TimeoutError):
            async with asyncio.timeout(self._answer_s), self._asking.call("DELETE", url) as answer:
                await answer.read(_SAID_BYTES_MAX)

    async def close(self) -> None:
        await self._tasks.close()
        await self._calls.close()
        await self._asking.close()

    @contextmanager
    def _at(self, name: str, until: asyncio.Timeout) -> Iterator[None]:
        self._waiting[name][until] = self._clock()
        try:
            yield
        finally:
            del self._waiting[name][until]

    async def _poll(self, name: str) -> None:
        while True:
            began_at = self._clock()
            was_gone = self.groups.is_gone(name)
            try:
                async with asyncio.timeout(self._answer_s):
                    said = await self._ask(name)
                self.groups.polled(name, said, self._clock())
            except (Lost, TimeoutError, msgspec.MsgspecError) as error:
                self.groups.missed(name)
                log.debug("the group %s does not answer: %r", name, error)
            if self.groups.is_gone(name) != was_gone:
                log.warning("the group %s is %s", name, "back" if was_gone else "gone")
            self._send_away(name)
            await asyncio.sleep(max(0.0, began_at + self._poll_s - self._clock()))

    async def _ask(self, name: str) -> Capacity:
        async with self._asking.call("GET", f"{self.groups.by_name[name].url}/capacity") as answer:
            data = await answer.read(_SAID_BYTES_MAX)
            if answer.status != 200:
                raise Lost(f"it says {answer.status}")
        said = _decode(data)
        free = max(0, said.limit - said.running) if said.free is None else said.free
        return Capacity(said.running, said.limit, said.queued, free)

    def _send_away(self, name: str) -> None:
        """Those who wait where it is in vain."""
        now = self._clock()
        is_gone = self.groups.is_gone(name)
        for until, since in self._waiting[name].items():
            if not until.expired() and (is_gone or self.groups.is_deserted(name, since, now)):
                until.reschedule(now)
