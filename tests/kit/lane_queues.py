"""The lanes of a leader and their workers, without the leader: jobs are queued and given out."""

from __future__ import annotations

from wakugumi.core.backoff import EVERYWHERE, Policies
from wakugumi.core.ids import ClientId, ConnId, JobId, WorkerId
from wakugumi.core.leader.jobs.states import JobState
from wakugumi.core.leader.records import ClientRecord, JobRecord, WorkerRecord
from wakugumi.core.leader.scheduling.lanes import Lanes
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Subject, parse_pattern, parse_subject

CALC = parse_subject("job.assign.calc")


class Queues:
    """Lanes over a roster. `serve` gives credit and tells which jobs went out, in order."""

    def __init__(self, policies: Policies = EVERYWHERE) -> None:
        self.roster = Roster(*policies.rankings)
        self.lanes = Lanes(self.roster, policies)
        self.clients: dict[str, ClientRecord] = {}
        self.jobs: dict[str, JobRecord] = {}

    def worker(self, name: str, *patterns: str, slots: int = 0) -> WorkerRecord:
        worker = self.roster.add(WorkerId(name.encode().ljust(16)))
        worker.slots = slots
        worker.set_name(name)
        wanted = tuple(parse_pattern(pattern) for pattern in patterns or (">",))
        self.lanes.table.pools_added(self.roster.connect(worker, ConnId(worker.number), wanted))
        return worker

    def lose(self, worker: WorkerRecord) -> None:
        self.lanes.worker_leaves(worker)
        worker.away_until = 0.0
        worker.jobs.clear()
        self.lanes.table.pools_removed(self.roster.disconnect(worker))
        self.roster.remove(worker)

    def client(self, name: str, cap: int = 1_000) -> ClientRecord:
        client = self.clients[name] = ClientRecord(ClientId(name))
        client.cap = cap
        return client

    def push(
        self, names: str, lane: str = "calc", *, first: bool = False, requirements: Requirements | None = None
    ) -> None:
        """Queue jobs. The letter says whose they are."""
        for name in names.split():
            client = self.clients.get(name[0]) or self.client(name[0])
            subject = parse_subject(f"job.assign.{lane}")
            now = self.roster.now
            job = JobRecord(
                JobId(name.encode().ljust(16)),
                client,
                subject,
                lane,
                1.0,
                now,
                b"",
                (),
                since=now,
                requirements=requirements,
            )
            self.jobs[name] = job
            self.lanes.push(job, first=first)

    def cancel(self, *names: str) -> None:
        for name in names:
            self.jobs[name].state = JobState.DONE
            self.lanes.dropped(self.jobs[name])

    def finish(self, *names: str) -> None:
        for name in names:
            client = self.jobs[name].client
            client.in_flight -= 1
            self.lanes.room_freed(client)

    def give(self, worker: WorkerRecord, credit: int) -> None:
        worker.credit += credit
        self.roster.changed(worker)

    def wait(self, seconds: float) -> list[tuple[str, str]]:
        """Time passes, and what it brings about is handed out."""
        until = self.roster.now + seconds
        pairs = []
        while (at := self.lanes.wake_at()) is not None and at <= until:
            assert at > self.roster.now or not pairs
            self.roster.now = at
            self.lanes.tick(at)
            pairs += self.assigned()
        self.roster.now = until
        return pairs

    def assigned(self) -> list[tuple[str, str]]:
        """Whatever can be handed out now: to whom, and what."""
        jobs = self.lanes.assign()
        pairs = [(job.worker.name, job.id.decode().strip()) for job in jobs if job.worker is not None]
        assert len(pairs) == len(jobs)
        self.roster.check()
        self.lanes.check()
        return pairs

    def serve(self, worker: WorkerRecord, credit: int = 1) -> str:
        self.give(worker, credit)
        return " ".join(job for _, job in self.assigned())


def keyed(queues: Queues, wanted: WorkerRecord, but_not: str = "", subject: Subject = CALC) -> Requirements:
    """A key whose home is this worker."""
    lane = queues.lanes.lane(subject) or queues.lanes.table.open(subject)
    for number in range(1_000):
        requirements = Requirements(key=f"key {number}")
        probe = JobRecord(
            JobId(b"probe"), ClientRecord(ClientId("p")), CALC, "calc", 1.0, 0.0, b"", (), requirements=requirements
        )
        if requirements.key != but_not and queues.lanes.picker.home_of(lane, probe) is wanted:
            return requirements
    raise AssertionError("no such key")
