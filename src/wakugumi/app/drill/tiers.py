"""`waku drill --groups G`: are jobs lost when a node, a leader, a whole group or the gateway dies? (SPEC O4, G2)

    clients ── HTTP ──► gateway ──► groups ──► nodes        all but the clients are processes, and die by SIGKILL

Every second job is submitted and waited for over one request; the others are submitted, left, and polled. A client
without an answer, or with one that says to retry, sends the same job under the same id. The faults are spread over the
jobs: each is due when so many are done. All events are marked in one file, and counted in the end.
"""

from __future__ import annotations

import asyncio
import io
import random
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.app.drill import marks as dm
from wakugumi.app.drill.client import job_id
from wakugumi.app.drill.fleet import Fleet, State, tiers_fleet
from wakugumi.app.drill.marks import DrillMark, Marks, now
from wakugumi.app.drill.plan import DrillOptions
from wakugumi.app.drill.tally import CLOCK_S, some
from wakugumi.app.serve.tiers import GATEWAY, GROUP, NODE, TierProcess, Tiers, parts_of
from wakugumi.app.show.output import duration, one, say
from wakugumi.app.show.progress import Tally, progress
from wakugumi.errors import Lost
from wakugumi.limits.units import MIB
from wakugumi.wire.untrusted_json import read_json

if TYPE_CHECKING:
    from wakugumi.adapters.http.client import HttpClient

CLIENTS: Final = 16
"""Requests that are under way at once."""
NODE_DIES: Final = "node"
LEADER_DIES: Final = "leader"
GROUP_DIES: Final = "group"
GATEWAY_DIES: Final = "gateway"
FAULTS: Final = (NODE_DIES, LEADER_DIES, GROUP_DIES, GATEWAY_DIES)
"""In the order in which they come."""

_LOOK_EVERY_S: Final = 0.02
_ASK_AGAIN_S: Final = 0.2
_RESULT_BYTES_MAX: Final = 1 * MIB
_CLIENT: Final = "client.1"


class TierCount(msgspec.Struct):
    """The outcome of a drill."""

    jobs: int
    answered: int = 0
    lost: list[int] = []
    """Handed in, and never answered."""
    failed: list[int] = []
    """Answered, but not with what their program made."""
    differing: list[int] = []
    """Asked for again in the end, and answered otherwise."""
    asked_again: int = 0
    sent_again: int = 0
    """Requests that had no answer, or were told to come again."""
    runs: int = 0
    again_cut: int = 0
    """Runs beyond the first, because the node was killed while the one before ran."""
    again_needed: int = 0
    """Runs beyond the first, because a process that knew of the run before was killed meanwhile."""
    again_without_need: list[int] = []
    faults: list[str] = []

    @property
    def wrong(self) -> list[str]:
        """Faults of the grid, as sentences. Empty if the drill was passed."""
        missing = [fault for fault in FAULTS if fault not in self.faults]
        found = [
            (self.lost, "lost"),
            (self.failed, "answered with something else than their program made"),
            (self.differing, "answered otherwise when they were asked for again"),
            (self.again_without_need, "run again without need"),
        ]
        said = [f"{one(len(jobs), 'job')} {what}: {some(jobs)}" for jobs, what in found if jobs]
        return said + ([f"it ended before these faults: {', '.join(missing)}"] if missing else [])

    @property
    def notes(self) -> list[str]:
        return []

    def rows(self) -> list[tuple[str, str, str]]:
        """A table for people: count, number, meaning."""
        return [
            ("jobs", str(self.jobs), "handed in through the gateway, each under an id of its own"),
            ("answered", str(self.answered), "with what their program made, if they did not fail"),
            ("lost", str(len(self.lost)), "must be 0"),
            ("failed", str(len(self.failed)), "must be 0"),
            (
                "asked for again",
                str(self.asked_again),
                f"{len(self.differing)} answered otherwise: must be 0",
            ),
            ("sent again", str(self.sent_again), "requests that had no answer, or were told to come again"),
            ("runs", str(self.runs), "of programs, the first of each job included"),
            ("again: cut", str(self.again_cut), "needed: their node was killed while they ran"),
            ("again: forgotten", str(self.again_needed), "needed: a process that knew of the run was killed"),
            ("again: no need", str(len(self.again_without_need)), "must be 0"),
            ("faults", str(len(self.faults)), ", ".join(self.faults) or "none"),
        ]


class TierDrill:
    """One run."""

    def __init__(self, wanted: DrillOptions, folder: Path) -> None:
        self._wanted = wanted
        self._folder = folder
        tiers = Tiers(wanted.groups, wanted.nodes, wanted.slots, folder / dm.FOLDER_PROGRAMS, dm.PROGRAM, folder)
        self._parts = parts_of(tiers)
        self._gateway = self._parts[-1].url
        self._left = list(range(wanted.jobs, 0, -1))
        self._done: dict[int, bytes] = {}
        self._faults = [((at + 1) * wanted.jobs // (len(FAULTS) + 1), fault) for at, fault in enumerate(FAULTS)]
        self._count = TierCount(wanted.jobs)
        self._last_at = now()
        self._seen: list[DrillMark] = []

    async def run(self) -> TierCount:
        """Run it, and count. Raises ConfigError if a process cannot be started."""
        from wakugumi.adapters.http.client import HttpClient

        wanted = self._wanted
        say(
            f"{one(wanted.jobs, 'job')} through a gateway, {one(wanted.groups, 'group')} of "
            f"{one(wanted.nodes, 'node')} with {one(wanted.slots, 'slot')} each; killed are {', '.join(FAULTS)}"
        )
        path = self._folder / "marks"
        marks = Marks(path)
        dm.write_program(self._folder, path)
        fleet = tiers_fleet(self._folder, marks, self._parts)
        tally = Tally(wanted.jobs)
        drawn = progress(tally)
        tasks, calls = Tasks(), HttpClient()
        try:
            while not fleet.is_up:
                fleet.look()
                await asyncio.sleep(_LOOK_EVERY_S)
            clients = [tasks.start(self._hand_in(calls, marks, tally), name=f"client {n}") for n in range(CLIENTS)]
            while not all(client.done() for client in clients):
                fleet.look()
                self._strike(fleet, drawn.say)
                drawn.show()
                if now() - self._last_at > wanted.patience_s:
                    drawn.say(f"given up: no result for {duration(wanted.patience_s)}")
                    break
                await asyncio.sleep(_LOOK_EVERY_S)
            for client in clients:
                if client.done():
                    client.result()
            await self._ask_all_again(calls)
        finally:
            drawn.close()
            await tasks.close()
            await calls.close()
            fleet.end()
            self._seen = marks.new()
            marks.close()
        return self._counted()

    # The clients.

    async def _hand_in(self, calls: HttpClient, marks: Marks, tally: Tally) -> None:
        while self._left:
            if self._faults and len(self._left) <= CLIENTS:  # The last jobs wait for the last fault.
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            number = self._left.pop()
            body = await self._answered(calls, number, waits=number % 2 == 0)
            good = answer_number(body) == number
            self._done[number] = body
            if not good:
                self._count.failed.append(number)
            marks.put(dm.RESULT, _CLIENT, number, "OK" if good else "FAILED")
            tally.add(ok=good)
            self._last_at = now()

    async def _answered(self, calls: HttpClient, number: int, *, waits: bool) -> bytes:
        """Send the job as often as it takes until it is answered; returns the body."""
        name = job_id(number)
        while True:
            try:
                if waits:
                    status, body = await self._call(calls, "POST", f"/submit/{name}", number)
                    if status == 200:
                        return body
                else:
                    status, body = await self._call(calls, "POST", f"/submit/{name}?async=1", number)
                    if status in {200, 202}:
                        status, body = await self._fetched(calls, name)
                        if status == 200:
                            return body
                if status < 500 and status != 404:
                    return body
            except Lost:
                pass
            self._count.sent_again += 1
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _fetched(self, calls: HttpClient, name: str) -> tuple[int, bytes]:
        """Asked for until it is there. Raises Lost."""
        while True:
            status, body = await self._call(calls, "GET", f"/status/{name}")
            if status == 200 and read_json(body, dict[str, Any]).get("state") in {"done", "failed"}:
                return await self._call(calls, "GET", f"/result/{name}")
            if status >= 400:
                return status, body
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _call(self, calls: HttpClient, method: str, path: str, number: int = 0) -> tuple[int, bytes]:
        headers, body = {}, None
        if number:
            boundary = f"drill-{random.getrandbits(64):x}"  # each client of the world has its own
            headers["Content-Type"] = f"multipart/form-data; boundary={boundary}"
            body = _form(boundary, number, self._wanted.job_ms / 1000)
        silence_s = self._wanted.patience_s
        async with calls.call(method, self._gateway + path, headers=headers, body=body, silence_s=silence_s) as answer:
            return answer.status, await answer.read(_RESULT_BYTES_MAX)

    async def _ask_all_again(self, calls: HttpClient) -> None:
        """One id has one result, also for a second request."""
        for number, body in list(self._done.items()):
            try:
                status, again = await self._call(calls, "GET", f"/result/{job_id(number)}")
            except Lost:
                status, again = 0, b""
            self._count.asked_again += 1
            if status != 200 or again != body:
                self._count.differing.append(number)

    # The faults.

    def _strike(self, fleet: Fleet, tell: Callable[[str], None]) -> None:
        if not self._faults or len(self._done) < self._faults[0][0]:
            return
        # One at a time: with two groups away, none might be left.
        if any(member.state is not State.RUNS or member.seen_up < member.lives for member in fleet.members):
            return
        _, fault = self._faults.pop(0)
        names = {part.name for part in struck_by(fault, self._parts)}
        struck = [member for member in fleet.members if member.name in names]
        for member in struck:
            member.kill(self._wanted.away_s)
        self._count.faults.append(fault)
        self._last_at = now()
        said = ", ".join(member.name for member in struck)
        tell(f"killed {said} for {self._wanted.away_s:g} s; {one(len(self._done), 'job')} finished")

    def _counted(self) -> TierCount:
        count = self._count
        count.answered = len(self._done)
        count.lost = [number for number in range(1, count.jobs + 1) if number not in self._done]
        count_runs(count, self._seen)
        return count


def count_runs(count: TierCount, marks: Sequence[DrillMark]) -> None:
    """How often each program ran, and why more than once."""
    starts: dict[int, list[DrillMark]] = defaultdict(list)
    ended: Counter[tuple[int, str]] = Counter()
    for mark in marks:
        if mark.what == dm.START:
            starts[mark.job].append(mark)
        elif mark.what == dm.END:
            ended[mark.job, mark.rest] += 1
    kills = [mark for mark in marks if mark.what == dm.KILL]
    for number, runs in starts.items():
        count.runs += len(runs)
        for before, after in pairwise(runs):
            if not ended[number, before.rest]:
                count.again_cut += 1
            elif any(_knew_of(kill, before) and before.at - CLOCK_S <= kill.at <= after.at + CLOCK_S for kill in kills):
                count.again_needed += 1
            else:
                count.again_without_need.append(number)


def _knew_of(kill: DrillMark, run: DrillMark) -> bool:
    """Was it the node of this run, the leader that had given it the job, or the gateway?"""
    node = run.life.partition(".")[0]
    leader = f"{GROUP}-{node.split('-')[1]}"
    return kill.life.partition(".")[0] in {node, leader, GATEWAY}


def struck_by(fault: str, parts: Sequence[TierProcess]) -> list[TierProcess]:
    """Processes that a fault kills: a node or the leader of the first group, the whole second group, or the gateway."""
    last = max(part.group for part in parts)
    match fault:
        case "node":
            return [next(part for part in parts if part.kind == NODE and part.group == 1)]
        case "leader":
            return [next(part for part in parts if part.kind == GROUP and part.group == 1)]
        case "group":
            return [part for part in parts if part.group == min(2, last)]
        case _:
            return [part for part in parts if part.kind == GATEWAY]


def _form(boundary: str, number: int, seconds: float) -> bytes:
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="number.in"\r\n\r\n'
    return f"{head}{number} {seconds:g}\n\r\n--{boundary}--\r\n".encode()


def answer_number(body: bytes) -> int | None:
    """The number that the program wrote, from a result."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            return int(archive.read("number.txt"))
    except (zipfile.BadZipFile, KeyError, ValueError):
        return None
