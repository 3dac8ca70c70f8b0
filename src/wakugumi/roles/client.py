"""What does a program call to have jobs done? `connect` gives a Grid; everything else follows from it.

    Grid.submit ─► Request (`request`) ─► Session (`session`) ─► leader … result ─► Job (`job`) ─► whoever awaits it
    Grid.map    ─► Window (`window`): so many at once, and no more

The connection may come and go: jobs wait for it and are sent again. `submit` waits while the leader can take nothing
(back pressure). All of this lives in one loop; `plain` is the same for programs without one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from wakugumi.adapters.net import dial, parse_address
from wakugumi.core import questions as qu
from wakugumi.core.job import JobId, job_id_from_name, show_job_id
from wakugumi.errors import ConfigError, PeerError, Refused
from wakugumi.limits import (
    BROADCAST_DEADLINE_S,
    CLIENT_CAP_DEFAULT,
    CLIENT_CAP_MAX,
    CLIENT_ID_CHARS_MAX,
    CONNECT_DEADLINE_S,
    JOB_TIMEOUT_MAX_S,
    KIB,
    UNFINISHED_PER_CLIENT_MAX,
)
from wakugumi.roles.broadcast import Broadcast
from wakugumi.roles.job import Job
from wakugumi.roles.request import Arg, Content, Plan, Requests, must_wait_for_disk, read_files
from wakugumi.roles.result import Result
from wakugumi.roles.session import Dialler, Session, Status
from wakugumi.roles.window import Results, Window
from wakugumi.wire import frame as fr
from wakugumi.wire import message as ms

LEADER_PORT: Final = 5000
_TURN_AFTER_BYTES: Final = 256 * KIB
"""Submitted in a row before the loop gets a turn: the jobs of a long plain loop leave while it still submits."""
_BYTES_BESIDE: Final = KIB
"""What a job counts for in that, besides its own bytes."""

_ANSWERS: Final[dict[type[object], type[qu.Answer]]] = {
    qu.AskStatus: qu.StatusAnswer,
    qu.AskTop: qu.TopAnswer,
    qu.AskJobs: qu.JobsAnswer,
    qu.AskJob: qu.JobRow,
    qu.AskStory: qu.StoryAnswer,
    qu.AskExplain: qu.ExplainAnswer,
    qu.AskCancel: qu.CancelAnswer,
    qu.AskWorkers: qu.WorkersAnswer,
    qu.AskDrain: qu.WorkerRow,
    qu.AskResume: qu.WorkerRow,
    qu.AskDead: qu.DeadAnswer,
    qu.AskLetter: qu.LetterAnswer,
    qu.AskRequeue: qu.DeadDoneAnswer,
    qu.AskDrop: qu.DeadDoneAnswer,
}


@asynccontextmanager
async def connect(
    url: str,
    *,
    client_id: str | None = None,
    cap: int = CLIENT_CAP_DEFAULT,
    connect_timeout_s: float = CONNECT_DEADLINE_S,
    unfinished_max: int = UNFINISHED_PER_CLIENT_MAX,
) -> AsyncIterator[Grid]:
    """A Grid over the leader at `url` (`waku://host:port`, or just `host:port`).

    `cap` is how many of this client's jobs the leader may run at once. Raises Refused("no-leader") if none answers
    within `connect_timeout_s`; later the connection is made anew whenever it is lost, and jobs wait for it.
    """
    address = parse_address(url, LEADER_PORT)
    grid = Grid(
        lambda owner: dial(address, owner),
        str(address),
        client_id=client_id or default_client_id(),
        cap=cap,
        unfinished_max=unfinished_max,
    )
    try:
        await grid.served(connect_timeout_s)
        yield grid
    finally:
        await grid.close()


class Grid:
    """A connection to a leader that heals itself. Made by `connect`."""

    def __init__(
        self,
        dialler: Dialler,
        leader: str,
        *,
        client_id: str,
        cap: int,
        unfinished_max: int = UNFINISHED_PER_CLIENT_MAX,
        embedded: bool = False,
    ) -> None:
        _check(client_id, cap)
        self.client_id = client_id
        self.cap = cap
        self._requests = Requests(client_id)
        wants = [want for want in ms.WANTS_CLIENT if not embedded or want != ms.HEARTBEATS]
        hello = ms.HelloClient(client_id, cap, wants)
        self._session = Session(
            dialler,
            leader,
            fr.encode(fr.HELLO_CLIENT, subject=client_id, payload=ms.encode(hello)),
            unfinished_max=unfinished_max,
            embedded=embedded,
        )
        self._bytes_in_a_row = 0

    async def submit(
        self,
        program: str,
        *,
        args: Sequence[Arg] = (),
        files: Mapping[str, Content] | None = None,
        job_id: str | None = None,
        subject: str = "",
        timeout_s: float | None = None,
        limits: ms.JobLimits | None = None,
        retries: int = 0,
        key: str | None = None,
        priority: int = 0,
        slots: int = 1,
    ) -> Job:
        """Hand in a job; waits while the leader can take none. Raises Refused for what can be no job.

        The program runs with `files` in its directory (bytes, text, or the Path of a file to send along) and `args` as
        its arguments. An id of your own makes it idempotent: handed in again with the same request, it is the same
        job. A program that ends with a non-zero exit has given its answer, unless `retries` says how often it is run
        again first. Jobs with the same `key` go to the same worker if the leader's policy for them is sticky; a higher
        `priority` (-100 to 100) goes before your other jobs for the same subject; `slots` is how many of one worker's
        slots it takes. `await` the Job for its Result.
        """
        loaded = await _load(files) if files else ()
        request = self._requests.make(
            program, args, loaded, job_id, subject, timeout_s, limits, retries, key, priority, slots
        )
        self._bytes_in_a_row += len(request.frame) + _BYTES_BESIDE
        if self._bytes_in_a_row >= _TURN_AFTER_BYTES:
            self._bytes_in_a_row = 0
            await asyncio.sleep(0)
        if self._session.must_wait:
            await self._session.admission()
        return self._session.start(request, None)[0]

    async def run(
        self,
        program: str,
        *,
        args: Sequence[Arg] = (),
        files: Mapping[str, Content] | None = None,
        job_id: str | None = None,
        subject: str = "",
        timeout_s: float | None = None,
        limits: ms.JobLimits | None = None,
        retries: int = 0,
        key: str | None = None,
        priority: int = 0,
        slots: int = 1,
    ) -> Result:
        """`submit`, and its result. Cancelled while it waits, it cancels the job."""
        job = await self.submit(
            program,
            args=args,
            files=files,
            job_id=job_id,
            subject=subject,
            timeout_s=timeout_s,
            limits=limits,
            retries=retries,
            key=key,
            priority=priority,
            slots=slots,
        )
        try:
            return await job
        except asyncio.CancelledError:
            await job.cancel()
            raise

    def map(
        self,
        program: str,
        items: Iterable[object] | AsyncIterable[object],
        *,
        args: Sequence[Arg] = (),
        files: Mapping[str, Content] | None = None,
        subject: str = "",
        timeout_s: float | None = None,
        limits: ms.JobLimits | None = None,
        retries: int = 0,
        key: str | None = None,
        priority: int = 0,
        slots: int = 1,
        window: int | None = None,
    ) -> Results:
        """One job per item, results as they finish, for any number of items in fixed memory.

        An item is one argument (a str or a number), a list or tuple of arguments, a Path (an input file, whose name is
        the argument), a dict of `submit`'s keyword arguments, or a Task. What it does not say comes from the arguments
        here; `args` stand before the item's own. Each result has its `item`. A job that fails or is refused is a
        result that is not `ok`; an exception of the items themselves ends the loop. `window` bounds how many are
        under way, twice the cap unless told otherwise. Leaving the loop cancels them.
        """

        source = items if isinstance(items, AsyncIterable) else iter(items)

        async def plan() -> Plan:
            common = await _load(files) if files else ()
            return Plan(
                self._requests, program, args, common, subject, timeout_s, limits, retries, key, priority, slots
            )

        return Results(self.new_window(window), plan, source, self._session.tasks)

    def broadcast(
        self,
        program: str,
        *,
        args: Sequence[Arg] = (),
        files: Mapping[str, Content] | None = None,
        job_id: str | None = None,
        subject: str = "",
        timeout_s: float | None = None,
        limits: ms.JobLimits | None = None,
        retries: int = 0,
        within_s: float = BROADCAST_DEADLINE_S,
    ) -> Broadcast:
        """Have every worker that matches run the program once, and loop over what each of them answers.

        Workers that join later are not included. One that has not answered within `within_s` counts as silent: its
        result is not `ok`, and its reason is `silent`. The `summary` counts all of them.
        """
        if not 0 < within_s <= JOB_TIMEOUT_MAX_S:
            raise Refused("bad-request", f"within_s is more than 0 and at most {JOB_TIMEOUT_MAX_S:.0f} s", hint="")

        async def begin() -> list[Result]:
            loaded = await _load(files) if files else ()
            request = self._requests.make(
                program, args, loaded, job_id, subject, timeout_s, limits, retries, broadcast_s=within_s
            )
            if self._session.must_wait:
                await self._session.admission()
            if self.status().old_leader:
                raise Refused("not-supported", "the leader is an old one and knows no broadcast")
            return [await self._session.start(request, None)[0]]

        return Broadcast(self._session, begin)

    async def wait(self, job_id: str) -> Result:
        """The result of a job that someone submitted before. Raises Refused("unknown-job")."""
        return await self._session.claim(_key(job_id), job_id)

    async def cancel(self, *job_ids: str) -> qu.CancelAnswer:
        """Cancel jobs, whoever submitted them, and tell what became of them."""
        keys = [_key(job_id) for job_id in job_ids]
        own = [job for key in keys if (job := self._session.find(key)) is not None]
        others = [show_job_id(key) for key in keys if self._session.find(key) is None]
        self._session.cancel(own)
        answer = await self.ask(qu.AskCancel(others)) if others else qu.CancelAnswer(0, 0, [])
        assert isinstance(answer, qu.CancelAnswer)
        return msgspec.structs.replace(answer, cancelled=answer.cancelled + len(own))

    async def ask(self, question: qu.Question) -> qu.Answer:
        """Ask the leader something. Waits for it if it is away. Raises Refused."""
        if isinstance(question, qu.AskJob | qu.AskStory | qu.AskExplain | qu.AskLetter):
            question = msgspec.structs.replace(question, job=show_job_id(_key(question.job)))
        elif isinstance(question, qu.AskDead | qu.AskRequeue | qu.AskDrop):
            question = msgspec.structs.replace(question, jobs=[show_job_id(_key(job)) for job in question.jobs])
        ask = os.urandom(16)
        answer = await self._session.ask(ask, fr.encode(fr.ASK, ask, payload=ms.encode(question)))
        if answer.refused:
            no = ms.read_refusal(answer.payload)
            raise Refused(no.code, no.message)
        try:
            return msgspec.json.decode(answer.payload, type=_ANSWERS[type(question)])
        except msgspec.MsgspecError as error:
            raise PeerError(f"the leader's answer cannot be read: {error}") from None

    def status(self) -> Status:
        """How the connection is."""
        return self._session.status()

    async def served(self, deadline_s: float) -> None:
        """Returns once a leader serves us. Raises Refused("no-leader") if none does in time."""
        await self._session.served(deadline_s)

    async def close(self) -> None:
        """Leave. What the leader has, it keeps and does; its results wait for whoever asks with `wait`."""
        await self._session.close()

    def new_window(self, size: int | None) -> Window:
        if size is None:
            size = min(max(2 * self.cap, 16), self._session.unfinished_max)
        if not 1 <= size <= self._session.unfinished_max:
            raise ValueError(f"a window is 1 to {self._session.unfinished_max} jobs, not {size}")
        return self._session.new_window(size)


def default_client_id() -> str:
    """WAKU_CLIENT_ID, or `user@host`: the same in every run, because it is part of the request."""
    if given := os.environ.get("WAKU_CLIENT_ID"):
        return given
    user = next((name for key in ("LOGNAME", "USER", "USERNAME") if (name := os.environ.get(key))), "")
    if not user:
        try:
            import pwd

            user = pwd.getpwuid(os.getuid()).pw_name
        except (ImportError, KeyError):  # There is no such database, or the user is not in it.
            user = f"uid{os.getuid()}" if hasattr(os, "getuid") else "someone"
    text = f"{user}@{os.uname().nodename if hasattr(os, 'uname') else 'localhost'}"
    return "".join(char if char.isprintable() else "_" for char in text)[:CLIENT_ID_CHARS_MAX]


def _check(client_id: str, cap: int) -> None:
    if not client_id or len(client_id) > CLIENT_ID_CHARS_MAX or not client_id.isprintable():
        raise ConfigError(f"a client id is 1 to {CLIENT_ID_CHARS_MAX} printable characters, not {client_id[:80]!r}")
    if not 1 <= cap <= CLIENT_CAP_MAX:
        raise ConfigError(f"a client's cap is 1 to {CLIENT_CAP_MAX} jobs at once, not {cap}")


def _key(job_id: str) -> JobId:
    try:
        return job_id_from_name(job_id)
    except ValueError as error:
        raise Refused("bad-request", str(error), hint="") from None


async def _load(files: Mapping[str, Content]) -> list[ms.InputFile]:
    if must_wait_for_disk(files):
        return await asyncio.to_thread(read_files, files)
    return read_files(files)
