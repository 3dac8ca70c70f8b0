"""How does a gateway talk to its groups? It polls each group for its capacity, and no job waits in vain.

    the group answers no more polls, or is deserted            jobs that wait there are sent to another group
    no progress for `try_s` and the job's own time             the job is late
    no further byte of an answer for `silence_s`               the answer is late

The log has one line when a group rests or is gone, and one when it is back, however many jobs were affected.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.gateway.groups import Capacity, Groups
from wakugumi.errors import Lost, PeerError
from wakugumi.limits.gateway import GATEWAY_SILENCE_S, GATEWAY_TRY_S, GROUP_ANSWER_S, GROUP_POLL_S
from wakugumi.limits.units import KIB
from wakugumi.wire.untrusted_json import JsonReader

if TYPE_CHECKING:
    from wakugumi.adapters.http.client import HttpAnswer

log = logging.getLogger("wakugumi.gateway")

_SAID_BYTES_MAX: Final = 64 * KIB


_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class _Said(msgspec.Struct):
    """The answer to a poll; a node has no queue, and sends only `running` and `limit`."""

    running: _Count
    limit: _Count
    queued: _Count = 0
    free: _Count | None = None


class GroupAnswer:
    """A group's answer to a job. Each piece of it extends the deadline."""

    def __init__(self, answer: HttpAnswer, more_time: Callable[[], None]) -> None:
        self._answer = answer
        self._more_time = more_time
        self.status = answer.status
        self.size = answer.size

    def header(self, name: str) -> str | None:
        """A header as text that can be kept, whatever its bytes."""
        value = self._answer.header(name)
        return value if value is None or value.isascii() else value.encode(errors="replace").decode()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Raises Lost if the answer ends early."""
        async for piece in self._answer.pieces():
            self._more_time()
            yield piece

    async def read(self, bytes_max: int) -> bytes:
        return await self._answer.read(bytes_max)


class _Wait:
    """A request that waits at a group."""

    __slots__ = ("is_sent_away", "since", "until")

    def __init__(self, until: asyncio.Timeout, since: float) -> None:
        self.until = until
        self.since = since
        self.is_sent_away = False


_said: Final = JsonReader(_Said)


class GroupCalls:
    """A gateway's connections. Make it inside a running loop, and close it."""

    def __init__(
        self,
        groups: Groups,
        *,
        poll_s: float = GROUP_POLL_S,
        answer_s: float = GROUP_ANSWER_S,
        try_s: float = GATEWAY_TRY_S,
        silence_s: float = GATEWAY_SILENCE_S,
    ) -> None:
        from wakugumi.adapters.http.client import HttpClient

        self.groups = groups
        self._poll_s = poll_s
        self._answer_s = answer_s
        self._try_s = try_s
        self._silence_s = silence_s
        self._calls = HttpClient(connect_s=answer_s)
        self._asking = HttpClient(connect_s=answer_s)
        """For requests that must not wait behind a thousand jobs."""
        self._waiting: dict[str, set[_Wait]] = {name: set() for name in groups.by_name}
        """Waiting requests by group."""
        self._failures = dict.fromkeys(groups.by_name, 0)
        """Failed tries by group since the last success."""
        self._tasks = Tasks()
        self._clock: Callable[[], float] = asyncio.get_running_loop().time

    def start(self) -> None:
        for name in self.groups.by_name:
            self._tasks.start_loop(partial(self._poll, name), name=f"poll {name}")

    def order(self, key: str) -> list[str]:
        return self.groups.order(key, self._clock())

    def failed(self, name: str, why: object) -> None:
        if self._failures[name] == 0 and not self.groups.is_gone(name):
            log.warning("group rests group=%s: %s", name, why)
        self._failures[name] += 1
        self.groups.failed(name, self._clock(), random.random())

    def answered(self, name: str) -> None:
        if self._failures[name]:
            log.warning("group answers again group=%s failed_tries=%d", name, self._failures[name])
            self._failures[name] = 0
        self.groups.answered(name)

    def was_full(self, name: str, again_s: float) -> None:
        self.groups.was_full(name, self._clock(), again_s)

    @asynccontextmanager
    async def dispatch(
        self, name: str, path: str, headers: Mapping[str, str], body: bytes | AsyncIterator[bytes], job_s: float
    ) -> AsyncIterator[GroupAnswer]:
        """Sends a job that may run for `job_s`, and returns the head of the answer. Raises Lost, with the reason `left`
        if the group is deserted, and `late` if the job has waited there for too long."""
        url = self.groups.by_name[name].url + path
        patience_s = job_s + self._try_s
        self.groups.sent(name)
        is_there = True
        """The job may take a slot there, or wait for one."""
        wait: _Wait | None = None
        try:
            async with asyncio.timeout_at(self._clock() + patience_s) as until:
                wait = _Wait(until, self._clock())
                if not isinstance(body, bytes):
                    body = self._timed(body, lambda: self._more_time(until, patience_s))
                with self._at(name, wait):
                    async with self._calls.call("POST", url, headers=headers, body=body) as answer:
                        is_there = False
                        self.groups.ended(name, is_over=True)
                        self._more_time(until, self._silence_s)
                        yield GroupAnswer(answer, lambda: self._more_time(until, self._silence_s))
        except TimeoutError:
            if self.groups.is_gone(name):
                raise Lost(f"{url} does not answer", "slow") from None
            if wait is not None and wait.is_sent_away:
                raise Lost(f"{url} has had no workers for long", "left") from None
            raise Lost(f"{url} has not answered in time", "late") from None
        except Lost as error:
            if is_there and error.why == "refused":
                is_there = False
                self.groups.ended(name, is_over=True)
            raise
        finally:
            if is_there:
                self.groups.ended(name, is_over=False)

    async def cancel(self, name: str, job: str) -> None:
        """Cancels the job there: best effort."""
        url = f"{self.groups.by_name[name].url}/jobs/{job}"
        with suppress(Lost, TimeoutError):
            async with asyncio.timeout(self._answer_s), self._asking.call("DELETE", url) as answer:
                await answer.read(_SAID_BYTES_MAX)

    async def close(self) -> None:
        await self._tasks.close()
        await self._calls.close()
        await self._asking.close()

    @contextmanager
    def _at(self, name: str, wait: _Wait) -> Iterator[None]:
        self._waiting[name].add(wait)
        try:
            yield
        finally:
            self._waiting[name].discard(wait)

    def _more_time(self, until: asyncio.Timeout, seconds: float) -> None:
        """Extends a deadline. A nearly right timer is kept: one for each piece would cost as much as the piece."""
        when, now = until.when(), self._clock()
        if not until.expired() and (when is None or not 0.9 * seconds <= when - now <= seconds):
            until.reschedule(now + seconds)

    async def _timed(self, pieces: AsyncIterator[bytes], more_time: Callable[[], None]) -> AsyncIterator[bytes]:
        """Extends the deadline while the body is being sent."""
        async for piece in pieces:
            more_time()
            yield piece

    async def _poll(self, name: str) -> None:
        while True:
            began_at = self._clock()
            why = ""
            was_gone = self.groups.is_gone(name)
            self.groups.polling(name)
            try:
                async with asyncio.timeout(self._answer_s):
                    said = await self._ask(name)
                self.groups.polled(name, said, self._clock())
            except (Lost, TimeoutError, PeerError) as error:
                self.groups.missed(name)
                why = f"no answer within {self._answer_s:g} s" if isinstance(error, TimeoutError) else str(error)
                log.debug("no answer to poll group=%s: %s", name, why)
            except Exception as error:
                self.groups.missed(name)  # Any other error counts as no answer.
                why = repr(error)
                log.exception("poll failed group=%s", name)
            if self.groups.is_gone(name) != was_gone:
                log.warning("group %s group=%s%s", "back" if was_gone else "gone", name, "" if was_gone else f": {why}")
            self._send_away(name)
            await asyncio.sleep(max(0.0, began_at + self._poll_s - self._clock()))

    async def _ask(self, name: str) -> Capacity:
        async with self._asking.call("GET", f"{self.groups.by_name[name].url}/capacity") as answer:
            data = await answer.read(_SAID_BYTES_MAX)
            if answer.status != 200:
                raise Lost(f"the group answered {answer.status}")
        said = _said.read(data)
        free = max(0, said.limit - said.running) if said.free is None else said.free
        return Capacity(said.running, said.limit, said.queued, free)

    def _send_away(self, name: str) -> None:
        """Ends waits at a group that is gone or deserted."""
        now = self._clock()
        is_gone = self.groups.is_gone(name)
        for wait in self._waiting[name]:
            if not wait.until.expired() and (is_gone or self.groups.is_deserted(name, wait.since, now)):
                wait.is_sent_away = True
                wait.until.reschedule(now)
