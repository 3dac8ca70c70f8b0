"""A real leader on a free port, peers that say whatever a test likes, and bystanders that show whether it serves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from tests.kit.eventually import eventually
from tests.kit.old_peers import DEADLINE_S, SUBMIT_JOB, Message, OldClient, OldPeer, OldWorker, pack

from wakugumi.adapters.journal.journal import Journal
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.limits.wire import FRAME_BYTES_MAX
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Decoder, Frame
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.hello import WANTS_CLIENT, WANTS_WORKER, HelloClient, HelloWorker
from wakugumi.wire.messages.job import unpack_ids, write_credit
from wakugumi.wire.messages.payload import encode


class Stranger(OldPeer):
    """A connection that says whatever the test likes."""

    async def say(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))
        async with asyncio.timeout(DEADLINE_S):
            await self.writer.drain()

    async def is_heard(self) -> None:
        """The leader has handled all that was said so far: it answers a job that it must refuse."""
        job_id = uuid4()
        await self.say(pack(Message(SUBMIT_JOB, job_id, subject="job..bad", payload=b"{}")))
        assert (await self.receive()).corr_id == job_id


class OwnPeer(Stranger):
    """A connection that speaks our own types."""

    async def hello_client(self, client_id: str = "own", *wants: str, cap: int = 64) -> None:
        payload = encode(HelloClient(client_id, cap, list(wants or WANTS_CLIENT)))
        await self.say(fr.encode(fr.HELLO_CLIENT, payload=payload))
        assert (await self.frame()).type == fr.WELCOME

    async def hello_worker(
        self, worker_id: UUID, patterns: str = "", *wants: str, name: str = "", holds: Holding | None = None
    ) -> None:
        payload = encode(HelloWorker(name, list(wants or WANTS_WORKER)))
        await self.say(fr.encode(fr.HELLO_WORKER, worker_id.bytes_le, subject=patterns, payload=payload))
        assert (await self.frame()).type == fr.WELCOME
        if holds is not None:
            await self.say(fr.encode(fr.HOLDING, payload=encode(holds)))

    async def credit(self, amount: int) -> None:
        await self.say(fr.encode(fr.CREDIT, payload=write_credit(amount)))

    async def submit(self, job_id: UUID, subject: str = "job.submit.calcA", **request: object) -> None:
        payload = json.dumps({"JobId": str(job_id), "ExecName": "calcA"} | request).encode()
        await self.say(fr.encode(fr.SUBMIT_JOB, job_id.bytes_le, subject=subject, payload=payload))

    async def ack(self, job_id: UUID, **result: object) -> None:
        payload = json.dumps({"JobId": str(job_id), "Status": "OK"} | result).encode()
        await self.say(fr.encode(fr.ACK_JOB, corr_id=job_id.bytes_le, payload=payload))

    async def say_ids(self, kind: int, *job_ids: UUID) -> None:
        await self.say(fr.encode(kind, payload=b"".join(job_id.bytes_le for job_id in job_ids)))

    async def ask(self, question: bytes) -> Frame:
        ask_id = uuid4().bytes
        await self.say(fr.encode(fr.ASK, ask_id, payload=question))
        answer = await self.frame()
        assert (answer.type, answer.corr_id) == (fr.ASK, ask_id)
        return answer

    async def is_heard_by(self, leader: Running) -> None:
        """The leader has handled all that was said so far: it answers a question."""
        await self.ask(b'{"ask":"status"}')

    async def frame(self) -> Frame:
        async with asyncio.timeout(DEADLINE_S):
            head = await self.reader.readexactly(4)
            body = await self.reader.readexactly(int.from_bytes(head, "little"))
        return next(iter(Decoder(FRAME_BYTES_MAX).feed(head + body)))

    async def expect(self, kind: int) -> Frame:
        """The next frame, which must be of this type."""
        frame = await self.frame()
        assert frame.type == kind, f"{fr.NAMES[frame.type]} came, not {fr.NAMES[kind]}: {frame.payload[:200]!r}"
        return frame

    async def expect_ids(self, kind: int) -> list[UUID]:
        return [UUID(bytes_le=job_id) for job_id in unpack_ids((await self.expect(kind)).payload)]


class Running:
    """A leader while it listens. What its state machine holds may be looked at between two turns of the loop."""

    def __init__(self, leader: Leader, port: int) -> None:
        self.leader = leader
        self.port = port

    @property
    def machine(self) -> LeaderMachine:
        machine = self.leader.drive.machine
        assert isinstance(machine, LeaderMachine)
        return machine

    async def until(self, holds: Callable[[LeaderMachine], object]) -> None:
        """Wait for something that can only be seen in the state machine."""
        await eventually(lambda: holds(self.machine))

    async def serves(self) -> None:
        """A job passes from a client to a worker and back, both of them strangers to whatever else goes on."""
        here = f"bystander-{uuid4()}"
        async with OldClient(self.port) as client, OldWorker(self.port) as worker:
            await client.hello(here)
            await worker.hello(f"job.assign.{here}", credit=1)
            job = await client.submit(f"job.submit.{here}")
            await worker.ack(await worker.assigned(), Stdout="fine")
            assert (await client.result())[0] == job


@asynccontextmanager
async def a_leader(
    journal: Journal | None = None, blobs: LeaderBlobs | None = None, **options: Any
) -> AsyncIterator[Running]:
    """Closed at the end, after a look at its invariants: no test may leave it broken or failed."""
    leader = Leader(journal, settings=LeaderSettings(**options), blobs=blobs)
    running = Running(leader, await leader.listen("127.0.0.1", 0))
    try:
        yield running
        await asyncio.sleep(0)
        assert not leader.drive.failed.done()
        running.machine.check()
    finally:
        await leader.close()
