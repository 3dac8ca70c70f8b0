"""A leader's files machine among workers that join, leave, lie, are slow or silent, fill their disks and evict;
clients that put, pin and drop; and a leader that is killed and starts anew from what it kept.

The storm is also the judge. It knows what is really on whose disk, and holds what it was told against the machine:
nobody is sent to a source that does not have the content or was seen lying, no source serves more than it should, each
put has one summary whose numbers add up, nothing is overwritten, and in the end, when the weather is good, everybody
who should have a cache has all of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from wakugumi.core.files import events as se
from wakugumi.core.files.machine import FileDistribution
from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.core.leader.events import Complain, QuestionAsked, SendAnswer, SendNo
from wakugumi.core.leader.questions import AskCache, AskDropCache, AskPin
from wakugumi.core.step import Step
from wakugumi.core.subject import Pattern, overlaps
from wakugumi.limits.files import (
    ACCUSERS_MIN,
    FETCHES_MAX,
    LEADER_COPIES_MAX,
    LIES_MAX,
    PUTS_PER_WORKER_MAX,
    UPLOADS_PER_WORKER_MAX,
)

GROUPS = ("job.assign.a.>", "job.assign.b.>", "job.assign.>", "job.assign.a.x")
KIB = 1024
GONE_S = 10_000.0
"""Longer than any time of the machine but the age of a cache."""


def sha_of(number: int) -> str:
    return f"{number:064x}"


class Broken(AssertionError):
    """The machine did what it must not."""


def must(holds: object, why: str) -> None:
    if not holds:
        raise Broken(why)


class WorkerDouble:
    """A worker as it should be, with a disk that outlives its connections."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.id = WorkerId(number.to_bytes(16, "big"))
        self.name = f"w{number}"
        self.patterns = (Pattern(rng.choice(GROUPS)),)
        self.blobs_wanted = rng.random() < 0.85
        self.serves = rng.random() < 0.8
        self.lies = rng.random() < 0.15
        self.conn: ConnId | None = None
        self.disk: set[str] = set()
        self.caches: dict[str, tuple[str, dict[str, str]]] = {}
        """By id: the version, and the content of each name."""
        self.asked: dict[str, se.SendCachePut] = {}
        self.heard: dict[str, tuple[bytes, bool]] = {}
        """The last put of each cache on this connection, and whether it was pinned."""
        self.wants: dict[bytes, tuple[str, str]] = {}
        """By want: the content, and where it fetches it from (empty while it waits, `leader`, or a worker)."""
        self.fulfilled: dict[bytes, str] = {}
        """Wants in line whose content came by another want, until they are answered."""

    @property
    def place(self) -> str:
        """Whoever was sent to an earlier connection of it has to come back and say so."""
        return f"{self.name} at {self.conn}"

    @property
    def url(self) -> str:
        return f"http://{self.name}" if self.serves else ""


class Storm:
    def __init__(self, seed: int, machine_of: Callable[..., Any] = FileDistribution) -> None:
        self.rng = random.Random(seed)
        self.now = 100.0
        self.machine_of = machine_of
        self.kept: dict[str, se.KeepCache] = {}
        self.workers = [WorkerDouble(number, self.rng) for number in range(1, 8)]
        self.conns = 100
        self.client = ConnId(1)
        self.puts: dict[bytes, se.PutAsked] = {}
        """Whose summaries are owed, by their ids."""
        self.sent_of: dict[bytes, int] = {}
        self.conflicts: set[bytes] = set()
        self.asks: set[bytes] = set()
        self.accusers: dict[WorkerId, set[WorkerId]] = {}
        self.seen_lying: set[tuple[WorkerId, str, WorkerId]] = set()
        """Who, about what, and who said so."""
        self.calm = False
        self.heard: list[tuple[se.SpreadEvent, ...]] = []
        self.machine = self._new_machine()

    def _new_machine(self) -> Any:
        return self.machine_of(lambda: self.rng.randbytes(16), now=self.now, caches_max=5)

    # The run.

    def run(self, steps: int = 250) -> None:
        for _ in range(steps):
            self.step()
        self.calm_down()

    def step(self) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (6, self.join),
            (2, self.leave),
            (5, self.put),
            (1, self.drop),
            (1, self.pin),
            (1, self.ask),
            (12, self.fetch_ends),
            (8, self.cache_put_ends),
            (2, self.evict),
            (1, self.lose_blob),
            (1, self.client_goes),
            (1, self.job_wants),
            (5, self.time_passes),
        ]
        if self.rng.random() < 0.01:
            self.restart()
            return
        self.rng.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()

    def calm_down(self) -> None:
        """From here on nothing goes wrong: liars have mended their ways, and everybody is there."""
        self.calm = True
        for worker in self.workers:
            worker.lies = False
            if worker.conn is None:
                self.come(worker)
        for _ in range(3_000):
            busy = [worker for worker in self.workers if worker.asked or worker.wants]
            if not busy and self.is_done():
                break
            moved = self.fetch_ends() | self.cache_put_ends()
            if not moved:
                wake_at = self.machine.wake_at()
                must(wake_at is not None, "somebody lacks something, and the machine sleeps")
                self.advance(max(wake_at - self.now, 0.001))
        must(self.is_done(), "in good weather somebody still lacks a cache")
        must(not self.puts, f"puts without a summary: {len(self.puts)}")
        counters = self.machine.sources.counters()
        must((counters.waiting, counters.fetching) == (0, 0), "somebody still waits for content")

    def is_done(self) -> bool:
        for record in self.kept.values():
            want = {file.name: file.sha256 for file in record.files}
            for worker in self.workers:
                if not self.matches(worker, record.targets) or self.is_excused(worker, record.cache_id):
                    continue
                version, files = worker.caches.get(record.cache_id, ("", {}))
                # An old worker knows no versions, and keeps what it has of an earlier life of the cache.
                if not want.items() <= files.items() or (worker.blobs_wanted and version != record.version):
                    return False
                if worker.blobs_wanted and files != want:
                    return False
                if worker.conn is None or not self.machine.has_cache(worker.id, record.cache_id):
                    return False
        return not self.puts

    def is_excused(self, worker: WorkerDouble, cache_id: str) -> bool:
        """It evicted it by itself: nobody asks it again. Or it is an old one with another life of the cache."""
        target = next(iter(t for t in self.machine.puts.members(cache_id) if t.worker == worker.id), None)
        if target is None:
            return False
        return cache_id in target.evicted or (not worker.blobs_wanted and cache_id in target.failed)

    # What the machine says, held against what is so.

    def tell(self, *events: se.SpreadEvent) -> None:
        """What is said while effects are performed is heard after them, as the drive has it."""
        self.heard.append(events)
        if len(self.heard) > 1:
            return
        while self.heard:
            self.perform(self.machine.handle(self.heard[0], self.now))
            self.heard.pop(0)

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            wake_at = self.machine.wake_at()
            if wake_at is None or wake_at > until:
                break
            self.now = max(self.now, wake_at)
            self.heard.append(())
            self.perform(self.machine.tick(self.now))
            self.heard.pop(0)
            if self.heard:
                later = [event for events in self.heard for event in events]
                self.heard.clear()
                self.tell(*later)
            again = self.machine.wake_at()
            must(again is None or again > self.now, "it wakes for ever")
        self.now = until

    def perform(self, step: Step[se.SpreadKeep, se.SpreadDo]) -> None:
        for record in step.keep:
            if isinstance(record, se.DropCache):
                must(record.cache_id in self.kept, "a cache is dropped that was never kept")
                del self.kept[record.cache_id]
            else:
                self.keep(record)
        for effect in step.do:
            self.do(effect)
        self.machine.check()
        for sha256 in {file.sha256 for record in self.kept.values() for file in record.files}:
            must(self.machine.pins(sha256), "content of a cache is not pinned")

    def keep(self, record: se.KeepCache) -> None:
        before = self.kept.get(record.cache_id)
        if before is not None:
            must(before.version == record.version, "a cache changed its version")
            old = {file.name: file.sha256 for file in before.files}
            new = {file.name: file.sha256 for file in record.files}
            must(old.items() <= new.items(), "something was overwritten")
        self.kept[record.cache_id] = record

    def do(self, effect: se.SpreadDo) -> None:
        if isinstance(effect, se.SendSummary):
            self.summary(effect)
        elif isinstance(effect, se.SendSource):
            self.source(effect)
        elif isinstance(effect, se.SendNoSource):
            self.no_source(effect)
        elif isinstance(effect, se.SendCachePut):
            self.cache_put(effect)
        elif isinstance(effect, se.SendCacheDrop):
            worker = self.at(effect.conn)
            if worker is not None:
                worker.asked.pop(effect.cache_id, None)
                worker.heard.pop(effect.cache_id, None)
                if worker.caches.pop(effect.cache_id, None) is not None:
                    self.tell(se.Stocked(effect.conn, False, "", "", (), (), {effect.cache_id: ""}))
        elif isinstance(effect, SendAnswer | SendNo):
            must(effect.ask_id in self.asks, "an answer to no question")
            self.asks.discard(effect.ask_id)
        else:
            must(isinstance(effect, Complain), f"what is {effect}?")
            if "nobody fetches" in effect.text:
                self.barred(effect.conn)

    def at(self, conn: ConnId) -> WorkerDouble | None:
        return next((worker for worker in self.workers if worker.conn == conn), None)

    def summary(self, effect: se.SendSummary) -> None:
        counts = effect.ok + effect.skipped + effect.failed + effect.silent + effect.waiting
        must(effect.ask in self.puts, "a summary that nobody is owed")
        must(effect.sent == counts, "a summary does not add up")
        put = self.puts[effect.ask]
        if effect.status == se.PROGRESS:
            must(put.progress, "progress that nobody asked for")
            return
        del self.puts[effect.ask]
        if effect.ask in self.conflicts:
            must((effect.status, effect.sent) == (se.FAILED, 0), "other content under the same name was taken")
        if effect.sent:
            must(effect.sent == self.sent_of.pop(effect.ask), "it was sent to others than those who match")
            enough = effect.ok + effect.skipped >= put.share * effect.sent
            must(enough == (effect.status != se.FAILED), "content with too little, or not content with enough")
            must((effect.status == se.SKIPPED) == (enough and not effect.ok), "SKIPPED is not what it was")
            must(effect.waiting == 0 or put.share < 1, "over while somebody was still waited for")
        else:
            must(effect.status == se.FAILED, "nobody was asked, and it did not fail")

    def source(self, effect: se.SendSource) -> None:
        worker = self.at(effect.conn)
        if worker is not None and effect.want in worker.fulfilled:
            must(worker.fulfilled.pop(effect.want) == effect.sha256, "an answer about other content")
            must(not effect.url, "a source for what is here")
            return
        must(worker is not None and effect.want in worker.wants, "a source for a want that is not there")
        assert worker is not None
        sha256, before = worker.wants[effect.want]
        must(sha256 == effect.sha256, "a source for other content")
        must(before == "", "a source for what is being fetched")
        if effect.url:
            holder = next(one for one in self.workers if one.url == effect.url)
            must(holder is not worker, "a worker is sent to itself")
            must(holder.conn is not None, "a source that is away")
            must(sha256 in holder.disk, "a source that does not have it")
            must(effect.key == holder.name, "a key of another worker")
            about = {sha for one, sha, _ in self.seen_lying if one == holder.id}
            must(sha256 not in about, "a source that lied about this before")
            must(not self.is_barred(holder), "a source that lied too often")
            worker.wants[effect.want] = sha256, holder.place
            uploads = [1 for one in self.workers for _, source in one.wants.values() if source == holder.place]
            must(len(uploads) <= UPLOADS_PER_WORKER_MAX, "a worker uploads too much at once")
        else:
            worker.wants[effect.want] = sha256, "leader"
            copies = [1 for one in self.workers for it in one.wants.values() if it == (sha256, "leader")]
            must(len(copies) <= LEADER_COPIES_MAX, "the leader gives too many copies at once")
        at_once = [1 for _, source in worker.wants.values() if source]
        must(len(at_once) <= FETCHES_MAX, "a worker is given more sources than it can use")

    def is_barred(self, worker: WorkerDouble) -> bool:
        lies = {(sha, by) for one, sha, by in self.seen_lying if one == worker.id}
        return len(lies) >= LIES_MAX and len({by for _, by in lies}) >= ACCUSERS_MIN

    def barred(self, conn: ConnId) -> None:
        worker = self.at(conn)
        must(worker is None or self.is_barred(worker), "a worker is barred that lied too little")

    def no_source(self, effect: se.SendNoSource) -> None:
        worker = self.at(effect.conn)
        must(worker is not None, "no source for nobody")
        assert worker is not None
        sha256, _ = worker.wants.pop(effect.want, ("", ""))
        must(
            not self.calm or effect.code == "no-cache" or sha256 not in self.at_leader(), "no source, but there is one"
        )
        self.give_up(worker, sha256)

    def at_leader(self) -> set[str]:
        return {file.sha256 for record in self.kept.values() for file in record.files}

    def give_up(self, worker: WorkerDouble, sha256: str) -> None:
        assert worker.conn is not None
        for cache_id, asked in list(worker.asked.items()):
            if any(file.sha256 == sha256 for file in asked.files):
                del worker.asked[cache_id]
                self.tell(se.PutAnswered(worker.conn, asked.put, cache_id, se.FAILED, "no source"))

    def cache_put(self, effect: se.SendCachePut) -> None:
        worker = self.at(effect.conn)
        must(worker is not None, "a put to nobody")
        assert worker is not None
        record = self.kept.get(effect.cache_id)
        if record is None:
            return  # Dropped in the same step; the drop follows.
        must(effect.version == record.version, "a put of another version than was kept")
        must(self.matches(worker, record.targets), "a put to a worker that does not match")
        must(effect.inline == (not worker.blobs_wanted), "content in the frame for the wrong worker")
        put, pinned = worker.heard.get(effect.cache_id, (b"", None))
        is_news = put == effect.put or pinned != effect.pinned
        must(is_news or not self.has_all(worker, record), "a worker is asked for what it has")
        worker.heard[effect.cache_id] = effect.put, effect.pinned
        if not self.calm and self.rng.random() < 0.1:
            return  # Lost on the way: silence.
        worker.asked[effect.cache_id] = effect
        must(len(worker.asked) <= PUTS_PER_WORKER_MAX, "a worker is asked for too much at once")
        self.want_missing(worker, effect)

    def has_all(self, worker: WorkerDouble, record: se.KeepCache) -> bool:
        return self.machine.has_cache(worker.id, record.cache_id) and worker.caches.get(record.cache_id) == (
            record.version,
            {file.name: file.sha256 for file in record.files},
        )

    def want_missing(self, worker: WorkerDouble, put: se.SendCachePut) -> None:
        if put.inline:
            return
        for file in put.files:
            if file.sha256 not in worker.disk and all(sha != file.sha256 for sha, _ in worker.wants.values()):
                self.want(worker, file.sha256, file.size)

    def want(self, worker: WorkerDouble, sha256: str, size: int) -> None:
        assert worker.conn is not None
        want = self.rng.randbytes(16)
        worker.wants[want] = sha256, ""
        here = sha256 in self.at_leader()
        self.tell(se.BlobWanted(worker.conn, want, sha256, size, "", "", "", here))

    # What happens.

    def matches(self, worker: WorkerDouble, targets: tuple[Pattern, ...]) -> bool:
        return any(overlaps(one, other) for one in worker.patterns for other in targets)

    def join(self) -> None:
        away = [worker for worker in self.workers if worker.conn is None]
        if away:
            self.come(self.rng.choice(away))
        elif self.rng.random() < 0.2:  # A second connection before the first has ended.
            worker = self.rng.choice(self.workers)
            before = worker.conn
            self.forget_conn(worker)
            self.come(worker)
            assert before is not None
            self.tell(se.WorkerWent(before))

    def come(self, worker: WorkerDouble) -> None:
        self.conns += 1
        worker.conn = ConnId(self.conns)
        self.tell(se.WorkerCame(worker.conn, worker.id, worker.name, worker.patterns, worker.blobs_wanted))
        if worker.blobs_wanted:
            caches = {cache_id: f"{version}/{len(files)}" for cache_id, (version, files) in worker.caches.items()}
            self.tell(se.Stocked(worker.conn, True, worker.url, worker.name, sorted(worker.disk), (), caches))

    def leave(self) -> None:
        there = [worker for worker in self.workers if worker.conn is not None]
        if there:
            worker = self.rng.choice(there)
            conn = worker.conn
            assert conn is not None
            self.forget_conn(worker)
            self.tell(se.WorkerWent(conn))

    def forget_conn(self, worker: WorkerDouble) -> None:
        worker.conn = None
        worker.asked.clear()
        worker.heard.clear()
        worker.wants.clear()

    def put(self) -> None:
        number = self.rng.randrange(4)
        cache_id = f"cache-{number}"
        names = self.rng.sample(range(4), self.rng.randint(1, 3))
        life = self.rng.choice((0, 0, 0, 1))
        files = tuple(se.CacheFile(f"f{name}", sha_of(1 + number * 8 + name + 4 * life), 100 * KIB) for name in names)
        ask = self.rng.randbytes(16)
        target = Pattern(self.rng.choice(GROUPS))
        share = self.rng.choice((1.0, 1.0, 0.5))
        put = se.PutAsked(
            self.client,
            ask,
            cache_id,
            files,
            (target,),
            self.rng.choice((5.0, 60.0, 600.0)),
            share,
            self.rng.random() < 0.2,
            self.rng.random() < 0.5,
        )
        self.puts[ask] = put
        known = {} if cache_id not in self.kept else {file.name: file for file in self.kept[cache_id].files}
        if any(known.get(file.name, file) != file for file in files):
            self.conflicts.add(ask)
        self.sent_of[ask] = sum(worker.conn is not None and self.matches(worker, (target,)) for worker in self.workers)
        self.tell(put)

    def _any_cache(self) -> str:
        return f"cache-{self.rng.randrange(5)}"

    def drop(self) -> None:
        cache_id = self._any_cache()
        self._ask(AskDropCache(cache_id))
        must(cache_id not in self.kept, "a dropped cache is still there")

    def pin(self) -> None:
        self._ask(AskPin(self._any_cache(), self.rng.random() < 0.5))

    def ask(self) -> None:
        self._ask(AskCache(self._any_cache()))

    def _ask(self, question: AskDropCache | AskPin | AskCache) -> None:
        ask_id = self.rng.randbytes(16)
        self.asks.add(ask_id)
        self.tell(QuestionAsked(self.client, ask_id, question))
        must(ask_id not in self.asks, "a question without an answer")

    def fetch_ends(self) -> bool:
        """One transfer that is under way ends, well or badly."""
        under_way = [
            (worker, want)
            for worker in self.workers
            if worker.conn is not None
            for want, (_, source) in worker.wants.items()
            if source
        ]
        if not under_way:
            return False
        worker, want = self.rng.choice(under_way)
        sha256, source = worker.wants[want]
        assert worker.conn is not None
        holder = next((one for one in self.workers if one.place == source), None)
        why = ""
        if source != "leader" and (holder is None or sha256 not in holder.disk):
            why = "dead"
        elif holder is not None and holder.lies:
            why = "lied"
        elif not self.calm and self.rng.random() < 0.2:
            why = self.rng.choice(("dead", "slow", "busy"))
        elif holder is None and sha256 not in self.at_leader():
            why = "dead"
        if not self.calm and self.rng.random() < 0.05:
            del worker.wants[want]
            self.tell(se.BlobWanted(worker.conn, want, sha256, 100 * KIB, "", "", se.GIVEN_UP, False))
            self.give_up(worker, sha256)
            return True
        if not why:
            worker.disk.add(sha256)
            for other in [key for key, (sha, _) in worker.wants.items() if sha == sha256]:
                _, busy = worker.wants.pop(other)
                if not busy:
                    worker.fulfilled[other] = sha256
            self.tell(se.Stocked(worker.conn, False, "", "", (sha256,), (), {}))
            must(not worker.fulfilled, "a want of content that came is not answered")
            return True
        if why == "lied" and holder is not None:
            self.accuse(worker, holder, sha256)
        worker.wants[want] = sha256, ""
        here = sha256 in self.at_leader()
        self.tell(se.BlobWanted(worker.conn, want, sha256, 100 * KIB, "", "", why, here))
        return True

    def accuse(self, worker: WorkerDouble, holder: WorkerDouble, sha256: str) -> None:
        accused = self.accusers.setdefault(worker.id, set())
        accused.add(holder.id)
        if len(accused) <= 3:
            self.seen_lying.add((holder.id, sha256, worker.id))

    def cache_put_ends(self) -> bool:
        """One worker has all it needs for a cache, and says so."""
        for worker in self.rng.sample(self.workers, len(self.workers)):
            if worker.conn is None:
                continue
            for cache_id, asked in list(worker.asked.items()):
                lacks = [file for file in asked.files if file.sha256 not in worker.disk]
                if not asked.inline and lacks:
                    self.want_missing(worker, asked)  # One of them may have been lost since.
                    continue
                del worker.asked[cache_id]
                self.answer(worker, asked)
                return True
        return False

    def answer(self, worker: WorkerDouble, asked: se.SendCachePut) -> None:
        assert worker.conn is not None
        if not self.calm and self.rng.random() < 0.1:
            self.tell(se.PutAnswered(worker.conn, asked.put, asked.cache_id, se.FAILED, "the disk is full"))
            return
        version, files = worker.caches.get(asked.cache_id, ("", {}))
        if version != asked.version and worker.blobs_wanted:
            files = {}
        new = {file.name: file.sha256 for file in asked.files}
        if any(files.get(name, sha256) != sha256 for name, sha256 in new.items()):
            must(not worker.blobs_wanted, "a worker with the same version has other content")
            self.tell(se.PutAnswered(worker.conn, asked.put, asked.cache_id, se.FAILED, "other content"))
            return
        status = se.SKIPPED if new.items() <= files.items() else se.OK
        files = files | new
        worker.caches[asked.cache_id] = asked.version, files
        answer = se.PutAnswered(worker.conn, asked.put, asked.cache_id, status, "")
        if worker.blobs_wanted:
            stock = {asked.cache_id: f"{asked.version}/{len(files)}"}
            self.tell(answer, se.Stocked(worker.conn, False, "", "", (), (), stock))
        else:
            self.tell(answer)

    def evict(self) -> None:
        full = [worker for worker in self.workers if worker.caches and worker.conn is not None and worker.blobs_wanted]
        if full:
            worker = self.rng.choice(full)
            cache_id = self.rng.choice(sorted(worker.caches))
            if cache_id in worker.asked:
                return
            del worker.caches[cache_id]
            assert worker.conn is not None
            self.tell(se.Stocked(worker.conn, False, "", "", (), (), {cache_id: ""}))

    def lose_blob(self) -> None:
        full = [worker for worker in self.workers if worker.disk and worker.conn is not None]
        if full:
            worker = self.rng.choice(full)
            used = {sha for _, files in worker.caches.values() for sha in files.values()}
            loose = sorted(worker.disk - used)
            if loose:
                sha256 = self.rng.choice(loose)
                worker.disk.remove(sha256)
                assert worker.conn is not None
                self.tell(se.Stocked(worker.conn, False, "", "", (), (sha256,), {}))

    def client_goes(self) -> None:
        self.tell(se.ClientWent(self.client))
        self.client = ConnId(self.client + 1)
        self.puts.clear()
        self.sent_of.clear()

    def job_wants(self) -> None:
        """A job names a file of a cache, or content that nobody may have."""
        there = [worker for worker in self.workers if worker.conn is not None and worker.blobs_wanted]
        if not there:
            return
        worker = self.rng.choice(there)
        assert worker.conn is not None
        cache_id, name = self._any_cache(), f"f{self.rng.randrange(4)}"
        file = self.machine.find(cache_id, name)
        if file is None:
            want = self.rng.randbytes(16)
            worker.wants[want] = "", ""
            self.tell(se.BlobWanted(worker.conn, want, "", 0, cache_id, name, "", False))
            must(want not in worker.wants, "a file of no cache is waited for")
        elif file.sha256 not in worker.disk:
            want = self.rng.randbytes(16)
            worker.wants[want] = file.sha256, ""
            self.tell(se.BlobWanted(worker.conn, want, "", 0, cache_id, name, "", True))

    def time_passes(self) -> None:
        # Never as long as a transfer may take: the judge does not know of transfers that are no longer waited for.
        self.advance(self.rng.choice((0.1, 1.0, 5.0)))
        for worker in self.workers:
            if worker.wants and self.rng.random() < 0.5:
                self.fetch_ends()

    def restart(self) -> None:
        """The leader is killed: what it kept is all that is left."""
        for worker in self.workers:
            self.forget_conn(worker)
        self.puts.clear()
        self.sent_of.clear()
        self.seen_lying.clear()
        self.accusers.clear()
        self.machine = self._new_machine()
        self.machine.recover(list(self.kept.values()), self.now)
        self.machine.check()
