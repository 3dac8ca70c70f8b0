"""Is the simulator worth anything? Bugs planted on purpose, as data: each must be found, and by a seed that we know.

A mutant is a text of the core that stands there exactly once, and what stands there instead. `world_of` compiles the
changed file into fresh modules: the real ones stay as they are. `mutant_seeds.txt` names a seed that finds each mutant,
and is a good world without it. A change of the core may change that world, so the search begins there and goes on from
seed 1; `python -m tests.sim --mutants --pin` writes the file anew.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple

from tests.sim.kinds import KINDS, Kind, SimWorld, kind_of

SEEDS_MAX: Final = 1_000
_CORE: Final = Path(__file__).parents[2] / "src" / "wakugumi" / "core"
_SEEDS: Final = Path(__file__).with_name("mutant_seeds.txt")


class Mutant(NamedTuple):
    name: str
    file: str
    """In `core`, without its suffix."""
    old: str
    new: str
    breaks: str
    where: str = ""
    """The kind of worlds that find it, if these are not the usual ones of its file."""

    @property
    def kind(self) -> Kind:
        """The worlds in which it can be found."""
        return KINDS[self.where] if self.where else kind_of(self.file)


def world_of(mutant: Mutant) -> type[SimWorld]:
    """The simulated world, on a core with this bug in it."""
    finder = _Finder(mutant)
    kept = {name: module for name, module in sys.modules.items() if _is_fresh(name)}
    parents = {name: (sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2]) for name in _ROOTS}
    roots = {name: getattr(parent, attribute, None) for name, (parent, attribute) in parents.items()}
    for name in kept:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        world = mutant.kind.load()
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _is_fresh(name)]:
            del sys.modules[name]
        sys.modules.update(kept)
        for name, (parent, attribute) in parents.items():
            if roots[name] is not None:
                setattr(parent, attribute, roots[name])
    assert finder.used, f"nothing imports {mutant.file}"
    return world


def pinned_seeds() -> dict[str, int]:
    """By the mutant's name."""
    lines = _SEEDS.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {name: int(seed) for name, seed in rows}


def pin_seeds(found: dict[str, int]) -> None:
    """Those of other mutants stay as they are."""
    title = _SEEDS.read_text(encoding="utf-8").splitlines()[0]
    seeds = pinned_seeds() | found
    rows = [f"{mutant.name} {seeds[mutant.name]}" for mutant in MUTANTS if mutant.name in seeds]
    _SEEDS.write_text("\n".join([title, *rows, ""]), encoding="utf-8")


def source_of(mutant: Mutant) -> str:
    return (_CORE / f"{mutant.file}.py").read_text(encoding="utf-8")


_ROOTS: Final = ("wakugumi.core", "tests.sim")


def _is_fresh(name: str) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in _ROOTS)


class _Finder(MetaPathFinder):
    """Finds the one changed file; everything else is found as always."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self.used = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != f"wakugumi.core.{self._mutant.file}".replace("/", "."):
            return None
        self.used = True
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._mutant)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text(encoding="utf-8")
        assert source.count(self._mutant.old) == 1, f"{self._mutant.name}: its text is not in {self._mutant.file} once"
        changed: CodeType = compile(source.replace(self._mutant.old, self._mutant.new), self.path, "exec")
        return changed


MUTANTS: Final = (
    Mutant(
        "receipt-without-keep",
        "leader/jobs/lifecycle",
        "            self._out.keep.append(\n                KeepJob(",
        "            (self._out.keep.append if client.open_jobs > 1 else repr)(\n                KeepJob(",
        "a client's only job gets its receipt and is on no disk: it dies with the leader",
    ),
    Mutant(
        "lost-attempt-not-queued",
        "leader/jobs/lifecycle",
        "            job.since = now\n            self._lanes.push(job, first=True)",
        "            job.since = now\n            first = job.attempts > 1\n            if first:\n"
        "                self._lanes.push(job, first=True)",
        "a job whose first worker is lost says that it is queued, and stands in no queue",
    ),
    Mutant(
        "failure-not-kept",
        "leader/jobs/lifecycle",
        "            out.keep.append(KeepResult(job.id, ok, outcome, result, blobs))",
        "            if ok:\n                out.keep.append(KeepResult(job.id, ok, outcome, result))",
        "a FAILED result is told and confirmed, and the disk does not have it",
    ),
    Mutant(
        "others-not-called-off",
        "leader/jobs/lifecycle",
        "        if job.former_workers or job.worker is not by:\n            self._call_off(job)",
        "        if job.former_workers:\n            self._call_off(job)",
        "a program whose job was cancelled is not told to stop",
    ),
    Mutant(
        "holding-ignored",
        "leader/workers",
        "        held = running | dict.fromkeys(event.finished) | fetched",
        "        held = fetched",
        "a worker comes back and says what it runs, and it is given to others all the same",
    ),
    Mutant(
        "any-worker-claims",
        "leader/workers",
        "            if job is not None and job_id not in worker.jobs and not may_claim(job, worker):",
        "            if False:",
        "a worker orphans a job outside its patterns that it was never given, and its answer counts",
    ),
    Mutant(
        "any-claim-is-taken",
        "leader/jobs/placing",
        "        if not patterns or owner_of(job.subject) == claimant.worker or hears(patterns, job.subject):",
        "        if True:",
        "a claim from before its job was known counts, whatever the patterns of its worker",
    ),
    Mutant(
        "credit-counted-twice",
        "leader/workers",
        "        worker.credit += amount",
        "        worker.credit += amount + (amount > 1)",
        "a worker is given more than it offered",
    ),
    Mutant(
        "done-is-unknown",
        "leader/clients",
        "            if job is None or not connection.sees(job) or (job.delivered and _is_cancelled(job)):",
        "            if job is None or job.state is DONE:",
        "who orphans a job that finished meanwhile hears that it is unknown",
    ),
    Mutant(
        "sent-is-delivered",
        "leader/clients",
        "        self._out.do.append(ev.SendResult(connection.conn, job.id, job.program, result))",
        "        self._out.do.append(ev.SendResult(connection.conn, job.id, job.program, result))\n"
        "        if not job.delivered:\n            self._delivered(job, job.since)",
        "a result counts as delivered when it is written: a client that is away for longer than its time loses it",
    ),
    Mutant(
        "bystander-settles",
        "leader/clients",
        "            if job is None or job.state is not DONE or job.delivered or job.client is not client:",
        "            if job is None or job.state is not DONE or job.delivered:",
        "whoever else waited for a result and has it settles it: it may be gone when its own client comes back",
    ),
    Mutant(
        "pending-dropped",
        "leader/clients",
        "            elif job.state is DONE:\n                self.send_result(job, connection)\n            else:",
        "            elif job.state is DONE:\n                pass\n            else:",
        "results that came while a client did not read are never sent",
    ),
    Mutant(
        "undelivered-forgotten",
        "leader/jobs/results",
        "            if job.since + UNDELIVERED_TTL_S > now:",
        "            if job.since + 20.0 > now:",
        "a result that nobody has fetched yet is forgotten after 20 s",
    ),
    Mutant(
        "late-ack-wins",
        "leader/acks",
        "        elif job.state is DONE:\n            return\n",
        "        elif job.state is DONE and (job.ok or not event.ok):\n            return\n",
        "an OK that comes after a FAILED result was told replaces it",
    ),
    Mutant(
        "timeout-is-a-retry",
        "leader/acks",
        "        elif is_final(event):\n            self._lifecycle.finish",
        '        elif is_final(event) and event.reason != "timeout":\n            self._lifecycle.finish',
        "a program that hangs is run again and again, and its job is dead in the end",
    ),
    Mutant(
        "conflict-in-silence",
        "leader/submits",
        "            if not is_repeated(job, event):",
        "            if not is_repeated(job, event) and job.state is not DONE:",
        "another request under the id of a job that is done is answered with its result, or replaces it",
    ),
    Mutant(
        "kept-result-of-another-request",
        "runner/assignments",
        "        return not request or (wanted := self._digest(ticket)) == request or not wanted",
        "        return bool(ticket)",
        "a worker answers an assignment with the result that it has of another request under this id",
    ),
    Mutant(
        "digest-not-kept",
        "leader/journal/recovery",
        "            lifecycle.tried.get(job.id),\n            job.request,\n",
        "            lifecycle.tried.get(job.id),\n",
        "a job that was moved in the journal no longer knows which request it is",
    ),
    Mutant(
        "payload-of-another-leaf",
        "leader/journal/offload",
        "            if job.leaf != event.leaf:",
        "            if job.leaf < event.leaf:",
        "a job that was moved while its old leaf was read gets the request that was not found there",
    ),
    Mutant(
        "running-queued-on-recovery",
        "leader/journal/recovery",
        "        if attempt is not None:\n            _expect_back(leader, job, attempt, now)",
        "        if attempt is not None and attempt.number > 1:\n            _expect_back(leader, job, attempt, now)",
        "what ran when the leader died is given to others at once",
    ),
    Mutant(
        "no-grace-on-recovery",
        "leader/journal/recovery",
        "        leader.workers.expect(worker, now + RECOVERY_GRACE_S)",
        "        leader.workers.expect(worker, now + 0.5)",
        "workers that need more than half a second to find the new leader lose what they run",
    ),
    Mutant(
        "forgotten-come-back",
        "leader/journal/recovery",
        "            case ForgetJob():\n                self._forget(job)",
        "            case ForgetJob():\n                pass",
        "forgotten jobs come back from the journal, whose leaves they stood in are gone",
    ),
    Mutant(
        "moved-job-keeps-its-leaf",
        "leader/journal/recovery",
        "    job.leaf = out.leaves.hold(",
        "    out.leaves.hold(",
        "a job that was moved is still looked for in its old leaf",
    ),
    Mutant(
        "leaves-dropped-too-early",
        "leader/journal/leaves",
        "            if sheaf.live or sheaf is self._open:",
        "            if sheaf.live > 1 or sheaf is self._open:",
        "the journal drops a leaf in which one job still stands",
    ),
    Mutant(
        "owed-not-sent-again",
        "runner/resend",
        "        self._owed.extend(self._kept.owed)\n",
        "",
        "a result that could not be told over a lost connection is never told",
    ),
    Mutant(
        "finished-not-told",
        "runner/slots",
        "theirs, tuple(state.kept.owed), tuple(state.kept.earlier)",
        "theirs, (), tuple(state.kept.earlier)",
        "a worker comes back with a result, and the leader gives the job to others before it hears of it",
    ),
    Mutant(
        "found-results-not-offered",
        "runner/finished",
        "            self._earlier[job] = None\n"
        "            self._remember(job, now - age_found_s(age_s, self._done_ttl_s))",
        "            self._earlier[job] = None",
        "what an earlier life finished is offered to the leader, and not known when it is assigned",
    ),
    Mutant(
        "cancel-not-repeated",
        "client/jobs",
        "                if record.is_cancelled:\n                    self._leaders.call_off(job, record.may_have)\n",
        "                if record.is_cancelled:\n",
        "a cancel whose connection was lost is forgotten, and the program runs for ever",
    ),
    Mutant(
        "cancel-repeated-once",
        "client/failover",
        "                do.append(ev.SendCancels(conn.id, cancels))\n            # An id",
        "                do.append(ev.SendCancels(conn.id, cancels))\n                leader.cancels.clear()\n"
        "            # An id",
        "a cancel that was said again to a leader which died before it had kept it is not said to the next one",
    ),
    Mutant(
        "unsent-cancel-not-told",
        "client/jobs",
        "            # A leader may have the job from a connection before this one, or from an earlier life.\n"
        "            self._leaders.call_off(job, self._rows)\n",
        "            self._leaders.call_off(job, [no for no, leader in self._rows.items() if leader.serves])\n",
        "a job that a leader has from an earlier connection is cancelled while there is none, and goes on",
    ),
    Mutant(
        "second-result-delivered",
        "client/failover",
        "                record = jobs.pop(event.job, None)\n",
        "                record = jobs.pop(event.job, None)\n"
        "                if record is None and not conn.blocked:\n                    results.append(event)\n",
        "a client hands out the result of a job that has ended for its user",
    ),
    Mutant(
        "lost-submit-not-sent-again",
        "client/replies",
        '        elif code == "unknown-job" and leader.no in record.may_have:\n',
        '        elif code == "unknown-job" and leader.no in record.may_have and at.accepted:\n',
        "a submit that a cut connection swallowed is given up as unknown",
    ),
    Mutant(
        "kept-free-for-ever",
        "leader/scheduling/picking",
        "            if needs.large is job:\n                self.let_go(turn)",
        "            if needs.large is job and job.worker is not None:\n                self.let_go(turn)",
        "a worker that was kept free for a large job stays so when that job is cancelled or goes elsewhere",
    ),
    Mutant(
        "one-credit-for-a-large-job",
        "leader/scheduling/lanes",
        "        self._roster.assign(worker, job.id, slots_of(job), job.size)",
        "        self._roster.assign(worker, job.id, 1, job.size)",
        "a job that takes several slots is paid for with one credit, and its worker has less room than it seems",
    ),
    Mutant(
        "home-without-end",
        "leader/scheduling/picking",
        "                    if needs.first_at + STICKY_PATIENCE_S <= now:\n                        return job, to\n",
        "",
        "the first job that waits for its home waits for as long as others of its client have theirs free",
    ),
    Mutant(
        "wants-not-kept",
        "leader/journal/recovery",
        "            job.requeued,\n            without_shuns(job.requirements),\n",
        "            job.requeued,\n            None,\n",
        "a job that was moved in the journal has forgotten what it needs for",
    ),
    Mutant(
        "slots-of-a-late-end",
        "runner/assignments",
        "        slots = jobs.running.pop(job)",
        "        slots = min(1, jobs.running.pop(job))",
        "a worker gives back one slot for a job that took several",
    ),
    Mutant(
        "adopted-too-early",
        "client/leaders",
        "        return now < leader.lost_at + self._grace_s or",
        "        return now < leader.lost_at + 0.7 * self._grace_s or",
        "jobs are given to others before the grace is over",
    ),
    Mutant(
        "sent-elsewhere-while-connected",
        "client/failover",
        "            conn.blocked = event.on\n            return",
        "            conn.blocked = event.on\n            for job, record in self._jobs.items() if event.on else ():\n"
        "                if record.is_unanswered_by(conn.leader.no):\n"
        "                    self._unfinished.find_place(job, record, now)\n            return",
        "what a leader that does not read was sent is sent to others as well, while its connection lives",
    ),
    Mutant(
        "losers-result-delivered",
        "client/failover",
        "                record = jobs.pop(event.job, None)\n",
        "                record = jobs.pop(event.job, None)\n"
        "                if record is None and event.job in conn.leader.cancels:\n"
        "                    results.append(event)\n",
        "a result that comes from a second leader is delivered as well",
    ),
    Mutant(
        "loser-not-told",
        "client/jobs",
        "            self._leaders.call_off(job, [no])\n            leader = self._rows[no]",
        "            leader = self._rows[no]",
        "a leader goes on with a job that another one has done",
    ),
    Mutant(
        "loser-told-only-if-there",
        "client/leaders",
        "            leader.remember_cancel(job)\n            if (line := leader.line) is not None:",
        "            if (line := leader.line) is not None:\n                leader.remember_cancel(job)",
        "a leader that is away when another one has done its job is not told when it comes back",
    ),
    Mutant(
        "loser-not-confirmed",
        "client/jobs",
        "                leader.confirmed.append(job)",
        "                pass",
        "a leader that comes back with a result which another one has brought keeps it for a day",
    ),
    Mutant(
        "inputs-held-after-cancel",
        "leader/jobs/lifecycle",
        "        if job.requirements is not None and not dead:\n",
        "        if job.requirements is not None and not dead and by is not None:\n",
        "what a cancelled job named is held for ever",
    ),
    Mutant(
        "requeued-inputs-not-held",
        "leader/jobs/lifecycle",
        "        self.jobs.add(job)\n        self.file_references.begin(job)\n",
        "        self.jobs.add(job)\n",
        "a dead job is requeued, and its inputs may be removed",
    ),
    Mutant(
        "result-blobs-not-recovered",
        "leader/journal/recovery",
        "        if blobs:\n            self.blobs[job.id] = blobs\n",
        "",
        "after a restart, the blobs of results that wait for their clients may be removed",
    ),
    Mutant(
        "released-too-early",
        "leader/jobs/file_references",
        "            need = self._needs[file]\n            if isinstance(need, dict) and need[client] > 1:\n",
        "            need = self._needs.get(file)\n            if need is None:\n                continue\n"
        "            if isinstance(need, dict) and need.get(client, 0) > 2:\n",
        "a blob that two jobs name is freed when one of them is done",
    ),
    Mutant(
        "two-never-adopt",
        "client/leaders",
        " + self._grace_s or len(self.rows) == 1",
        " + self._grace_s or len(self.rows) <= 2",
        "of two leaders, the one that is left does not adopt what the other one had",
    ),
    Mutant(
        "adopted-too-late",
        "client/leaders",
        "            if leader.has_stranded and len(self.rows) > 1:",
        "            if leader.has_stranded and len(self.rows) > 9:",
        "the end of the grace wakes nobody: jobs are adopted when something else happens",
    ),
    Mutant(
        "returned-leader-not-claimed-from",
        "client/replies",
        "                if conn.own:\n                    conn.claims.append(job)",
        "                if conn.own and len(self._rows) > 1:\n                    pass\n"
        "                elif conn.own:\n                    conn.claims.append(job)",
        "a leader is back in time, and is not asked for what it has",
    ),
    Mutant(
        "smaller-cap-not-told",
        "client/leaders",
        "leader.share and leader.share != conn.sent_cap:",
        "leader.share and leader.share > conn.sent_cap:",
        "when a leader returns, the others are not told that their share is smaller: the cap is exceeded",
    ),
    Mutant(
        "cap-not-divided-anew",
        "client/leaders",
        "                leader.lost_at = now\n                self.divide(do)",
        "                leader.lost_at = now",
        "the share of a leader that is lost goes to nobody",
    ),
    Mutant(
        "removed-leaders-jobs-forgotten",
        "client/jobs",
        "            if record.at.leader == leader.no:\n                self.find_place(job, record, now)\n\n"
        "    def give_up_unplaced",
        "            if record.at.leader == leader.no:\n                record.at = UNSENT\n\n    def give_up_unplaced",
        "what a removed leader had when it was lost is given to nobody",
    ),
    Mutant(
        "starvation-between-patterns",
        "leader/scheduling/lanes",
        "        lane.place = 0\n        turn.client.in_flight += 1\n        if self._roster.by_turns:",
        "        if len(worker.pools) == 1:\n            lane.place = 0\n"
        "        turn.client.in_flight += 1\n        if self._roster.by_turns:",
        "a subject that a worker of several patterns serves keeps its place, and the others starve",
    ),
    Mutant(
        "a-flood-is-read-without-end",
        "connections/read_ahead",
        "return self.ahead_bytes >= self._max or",
        "return",
        "a client that is far ahead of the disk is read from, and others wait behind all that it sends",
    ),
    Mutant(
        "sick-worker-keeps-its-credit",
        "runner/assignments",
        "            if credit.keeps:\n                credit.kept += slots\n            elif",
        "            if self._health.unacknowledged:\n                credit.kept += slots\n            elif",
        "a machine that cannot start programs goes on offering its slots, once the leader knows that it is sick",
    ),
    Mutant(
        "poison-never-ends",
        "leader/acks",
        "        elif never_began(event):\n",
        "        elif event.reason == 'disk' and event.begun and job.worker is worker:\n"
        "            self._lifecycle.give_back(job, now)\n        elif never_began(event):\n",
        "a program that breaks its machine is given back as if it had not begun, again and again",
    ),
    Mutant(
        "not-begun-without-end",
        "leader/jobs/not_started",
        "        if lacks or tried != before:\n",
        "        if True:\n",
        "a job that can be started nowhere goes from worker to worker for ever",
    ),
    Mutant(
        "not-begun-is-an-attempt",
        "leader/jobs/not_started",
        "        if lacks or tried != before:\n",
        "        if lacks or before is None:\n",
        "a job that the second worker could not start either has used up an attempt",
    ),
    Mutant(
        "tried-not-recovered",
        "leader/journal/recovery",
        "    leader.lifecycle.tried.update(fold.tried)\n",
        "",
        "a leader that is started anew does not know who could not start a job, and sends it there again",
    ),
    Mutant(
        "unknown-although-another-has-it",
        "leader/jobs/not_started",
        "        if lacks and not self._able(job, tried) and",
        "        if lacks and not [it for it in self._able(job, tried) if it.usable_credit] and",
        "a program is said to be unknown while the worker that has it is busy",
    ),
    Mutant(
        "unknown-although-one-comes-back",
        "leader/jobs/not_started",
        " and self._expected_until(job, tried, now) <= now:\n",
        ":\n",
        "a program is said to be unknown while the worker that has it connects anew",
    ),
    Mutant(
        "void-credit-is-used",
        "leader/workers",
        "        if why:\n            worker.credit = 0\n",
        "        if why:\n            worker.credit = min(worker.credit, 1)\n",
        "a leader that was told that a worker rests goes on using its credit",
    ),
    Mutant(
        "removed-leader-left-at-once",
        "client/failover",
        "        if not leader.serves:\n            self._part(leader, now, do)",
        "        if not leader.serves or leader.in_flight < 3:\n            self._part(leader, now, do)",
        "a removed leader is left while it has jobs",
    ),
    Mutant(
        "submitted-without-asking",
        "client/failover",
        "                if several and event.given and self._search.begin(event.job, now):",
        "                if several and event.given and now < 0 and self._search.begin(event.job, now):",
        "a client that comes back gives its jobs to whatever leader, and another one runs or has done them",
    ),
    Mutant(
        "first-unknown-settles",
        "client/replies",
        "            elif not is_expected and self._search.is_settled(job):",
        "            elif not is_expected:",
        "the first leader that does not know a job decides that nobody does",
    ),
    Mutant(
        "unbounded-bytes-to-a-worker",
        "leader/scheduling/roster",
        "        worker.unwritten_bytes += size\n",
        "        worker.unwritten_bytes += 0 * size\n",
        "a worker is given all jobs that it has credit for at once, however large they are",
    ),
    Mutant(
        "unbounded-bytes-to-a-client",
        "leader/clients",
        "        connection.unwritten_bytes += size\n",
        "        connection.unwritten_bytes += 0 * size\n",
        "a client is given all its results at once, however large they are",
    ),
    Mutant(
        "unbounded-bytes-to-a-leader",
        "runner/resend",
        "        self._unwritten_bytes += size\n",
        "        self._unwritten_bytes += 0 * size\n",
        "a worker tells all its results at once, however large they are",
    ),
    Mutant(
        "unbounded-bytes-of-submits",
        "client/failover",
        "                    conn.unwritten_bytes += len(event.frame)\n",
        "                    conn.unwritten_bytes += 0\n",
        "a client submits all it has at once, however large its jobs are",
    ),
    Mutant(
        "unbounded-bytes-of-known-jobs",
        "client/leader_row",
        "        if self.unwritten_bytes >= GIVEN_BYTES_MAX:\n            self.later",
        "        if self.unwritten_bytes < 0:\n            self.later",
        "a client sends a leader all jobs that it knows at once, however large they are",
    ),
    Mutant(
        "loaded-jobs-not-counted",
        "leader/workers",
        "            if not worker.loading:\n",
        "            if worker.loading >= 0:\n",
        "a worker is given more before the jobs are sent whose requests are read from the journal",
    ),
    Mutant(
        "bytes-are-no-sign-of-life",
        "leader/machine",
        "            worker.seen_at = now\n            if event.cpu is not None:\n",
        "            if event.cpu is not None:\n                worker.seen_at = now\n",
        "a worker whose result takes long to arrive counts as silent",
    ),
    Mutant(
        "stranded-job",
        "gateway/flights",
        "        if is_open and not self._state.is_stopping:\n"
        "            self.queue.append(flight.row.job)\n"
        "            self.pump()",
        "        if is_open and self._state.is_stopping:\n"
        "            self.queue.append(flight.row.job)\n"
        "            self.pump()",
        "a job whose flight broke is forwarded by nobody",
    ),
    Mutant(
        "silent-conflict",
        "gateway/rows",
        "if self.request.startswith(DIGEST_FORM) and request and self.request != request:",
        "if not self.request and request == self.request:",
        "another request of an id gets the first one's answer",
    ),
    Mutant(
        "near-group-looks-full",
        "gateway/groups",
        "        health.others = max(0, said.limit - said.free + said.queued - health.most_ours)",
        "        health.others = max(0, said.limit - said.free + said.queued)",
        "own jobs count twice: a near group looks full",
    ),
    Mutant(
        "ended-poll",
        "gateway/tries",
        "            except Exception as error:\n                groups.missed(name)",
        "            except ZeroDivisionError as error:\n                groups.missed(name)",
        "a poll ends with the first unforeseen answer",
    ),
    Mutant(
        "poll-without-deadline",
        "gateway/tries",
        "Deadline(self._flows, bounds.answer_s,",
        "Deadline(self._flows, 1e9,",
        "a group that hangs is asked once, and never again",
    ),
    Mutant(
        "answer-before-row",
        "gateway/flights",
        "            flight.outcome.keep(ForwardAnswer(200, head, reply.size, one.number))",
        "            flight.outcome.keep(ForwardAnswer(200, head, reply.size, one.number))\n"
        "            self._release(flight, is_kept=True)",
        "clients have the last byte before the row is stored",
    ),
    Mutant(
        "accepted-without-flush",
        "gateway/flights",
        "                try:\n                    await FlushRows()\n                finally:",
        "                try:\n                    pass\n                finally:",
        "202 is said before the row survives power loss",
    ),
    Mutant(
        "orphans-stay",
        "gateway/housekeeping",
        "        elif await ReplaceRow(row, replace(row, owner=self._state.owner)) is not None:\n"
        "            self.taken_over += 1\n"
        "            self._flights.queue.append(job)",
        "        elif await ReplaceRow(row, replace(row, owner=self._state.owner)) is not None:\n"
        "            self.taken_over += 1",
        "a job that was taken over is not forwarded",
    ),
    Mutant(
        "async-row-dropped",
        "gateway/housekeeping",
        "        if not row.is_async:\n            await RemoveRow(row)\n        elif",
        "        if row.is_async:\n            await RemoveRow(row)\n        elif",
        "an accepted job of a dead gateway is dropped",
    ),
    Mutant(
        "seat-not-given-back",
        "gateway/requests",
        "            finally:\n                self.submits -= 1",
        "            finally:\n                self.submits -= self.submits > 1",
        "the last submission keeps its seat",
    ),
    Mutant(
        "body-not-closed",
        "gateway/flights",
        "            flight.outcome.keep(GONE)\n"
        "            if flight.body is not None:\n"
        "                flight.body.close()",
        "            flight.outcome.keep(GONE)",
        "a flight never gives its body back",
    ),
    Mutant(
        "try-not-closed",
        "gateway/forward",
        "            finally:\n                tries.close(one)",
        "            finally:\n                if one.is_there:\n                    tries.close(one)",
        "a connection to a group stays open",
    ),
    Mutant(
        "file-for-an-older-group",
        "gateway/forward",
        "                if as_file and problem.status in _NOT_UNDERSTOOD and not reply.takes_files:",
        "                if as_file and problem.status == 415:",
        "a client is blamed for a file that its group does not understand",
    ),
    Mutant(
        "slot-counted-for-ever",
        "gateway/tries",
        "        if (one := self.open_tries.get(number)) is not None and one.is_there:\n"
        "            one.is_there = False\n"
        "            self._groups.ended(one.group, is_over=True)",
        "        if (one := self.open_tries.get(number)) is not None and one.is_there:\n"
        "            one.is_there = False",
        "a job that ended keeps its slot at the group",
    ),
    Mutant(
        "gone-group-keeps-jobs",
        "gateway/tries",
        "            if is_gone:\n                one.flow.interrupt(",
        "            if is_gone and not one.is_there:\n                one.flow.interrupt(",
        "a job waits at a group that is gone",
    ),
    Mutant(
        "lease-not-renewed",
        "gateway/housekeeping",
        '            (self._hold, often_s, "lease not renewed"),',
        '            (self._hold, 1e6, "lease not renewed"),',
        "a living gateway loses its jobs to others",
    ),
    Mutant(
        "status-of-another-client",
        "gateway/requests",
        "KnownRow(await self._known(ask))",
        "KnownRow(await self._known(replace(ask, sight=None)))",
        "a client sees where the jobs of others are",
    ),
    Mutant(
        "result-of-another-client",
        "gateway/requests",
        "row = await self._known(ask, contents=True)",
        "row = await self._known(replace(ask, sight=None), contents=True)",
        "a client reads the results of others",
    ),
    Mutant(
        "events-of-another-client",
        "gateway/requests",
        "        found: GatewayJob | None = await self._known(ask)\n",
        "        ask = replace(ask, sight=None)\n        found: GatewayJob | None = await self._known(ask)\n",
        "a client watches the jobs of others",
    ),
    Mutant(
        "cancel-for-another-client",
        "gateway/requests",
        "        row = await self._known(ask)\n        row.check_owned(ask.sight)\n",
        "        row = await self._known(replace(ask, sight=None))\n",
        "a client cancels the jobs of others",
    ),
    Mutant(
        "id-of-another-client",
        "gateway/requests",
        "        if row is not None:\n            row.check_seen(ask.sight)\n",
        "",
        "a client that uses the id of another client's job gets its answer",
    ),
    Mutant(
        "id-taken-meanwhile",
        "gateway/flights",
        "            if not is_new:\n                row.check_repeat(new.request, sight)\n",
        "            if not is_new:\n                row.check_same(new.request)\n",
        "a job is accepted under an id that another client took a moment before",
    ),
    Mutant(
        "failed-job-of-another-client",
        "gateway/rows",
        "if sight is not None and not sight.owns(self.client):",
        "if sight is not None and not sight.sees(self.client):",
        "a client that may see all jobs replaces another's failed job",
    ),
    Mutant(
        "job-before-its-blobs",
        "transfers/uploads",
        "            elif not job.left:\n                self._send_again(job)\n",
        "            elif len(job.left) < 2 and job.conn:\n                self._send_again(job)\n",
        "a job is sent again while its last blob is on its way",
    ),
    Mutant(
        "asked-twice-sent-early",
        "transfers/uploads",
        "        if job.later is not None:\n            job.later.cancel()\n        job.conn, job.later = conn, None\n",
        "        job.conn, job.later = conn, None\n",
        "a job that waits to be sent again is sent although the leader has asked anew",
    ),
    Mutant(
        "changed-file-ends-others",
        "transfers/uploads",
        'if no.code == "bad-request" and sent != blob:',
        'if no.code == "bad-request" and sent is None:',
        "a changed file ends jobs that bring the same content from elsewhere",
    ),
    Mutant(
        "cancelled-job-waits",
        "transfers/uploads",
        "            if conn := job.conn:\n"
        "                self._leave(job)\n"
        "                self._refuse(conn, job, _cancelled())\n",
        "            if conn := job.conn:\n                self._leave(job)\n",
        "a cancelled job whose files travel never ends",
    ),
    Mutant(
        "welcome-awaited-for-ever",
        "transfers/uploads",
        "        if leader.over is None:\n            until",
        "        if leader.over is not None:\n            until",
        "a job waits for ever for the Welcome of an old leader",
    ),
    Mutant(
        "lost-leader-keeps-jobs",
        "transfers/uploads",
        "            if job.conn == conn:\n                self._leave(job)\n",
        "            if job.conn == conn and not job.left:\n                self._leave(job)\n",
        "uploads for a lost connection go on",
    ),
    Mutant(
        "no-room-forgets-the-job",
        "transfers/uploads",
        "        job.conn, job.waits_for_room = conn, True\n"
        "        self._later(job, min(RECONNECT_FIRST_S * 2 ** min(job.refusals - 2, 16), RECONNECT_MAX_S), refuse)\n",
        "        job.conn = ConnId(0)\n",
        "a job that a place has no room for twice is not offered again",
    ),
    Mutant(
        "retry-without-pause",
        "transfers/transfers",
        "                await self._flows.pause(pause_s)\n",
        "                await self._flows.pause(0.0)\n",
        "a failed transfer is tried again at once, for ever",
    ),
    Mutant(
        "progress-forgotten",
        "transfers/transfers",
        "            transfer.moved_at = max(transfer.moved_at, now - again.moved_s)\n",
        "            transfer.moved_at = max(transfer.moved_at, -again.moved_s)\n",
        "a place that takes bytes slowly counts as unreachable",
    ),
    Mutant(
        "turn-lost-with-its-flow",
        "transfers/transfers",
        "            if turn.is_kept:  # The turn came in the moment of the interruption.\n"
        "                self._give_back()\n",
        "            if turn.is_kept:\n                pass\n",
        "a turn that comes when its transfer ends is never given back",
    ),
    Mutant(
        "broken-content-for-ever",
        "transfers/transfers",
        "        transfer.broken += again.is_broken\n",
        "        transfer.broken = int(again.is_broken)\n",
        "content that arrives broken is sent again and again",
    ),
    Mutant(
        "second-question-not-heard",
        "transfers/deliveries",
        '            delivery.flow = self._flows.start(partial(self._deliver, job, delivery), "delivery")\n'
        "        delivery.left |= dict.fromkeys(blobs)\n",
        '            delivery.flow = self._flows.start(partial(self._deliver, job, delivery), "delivery")\n'
        "            delivery.left |= dict.fromkeys(blobs)\n",
        "a leader that asks again gets the result without its blobs",
    ),
    Mutant(
        "no-thread-no-result",
        "transfers/deliveries",
        "            except Lost as error:\n                raise self._again(url, error) from None\n",
        "            except Lost:\n                raise\n",
        "a result is owed for ever if no thread could be started once",
    ),
    Mutant(
        "large-parts-take-all-turns",
        "transfers/deliveries",
        "            if part.size > LARGE_WORK_BYTES:\n",
        "            if part.size > 2 * LARGE_WORK_BYTES:\n",
        "large parts hold up all others",
    ),
    Mutant(
        "settled-result-goes-on",
        "transfers/deliveries",
        "        if (delivery := self.under_way.pop(job, None)) is not None:\n            delivery.flow.cancel()\n",
        "        if (delivery := self.under_way.pop(job, None)) is not None and not delivery.left:\n"
        "            delivery.flow.cancel()\n",
        "parts of a result that the leader does not want are sent",
    ),
    Mutant(
        "late-question-is-heard",
        "transfers/uploads",
        "leader.url is None or job.sent_to not in {conn, ConnId(0)}:",
        "leader.url is None or job.sent_to not in {conn, ConnId(0), job.sent_to}:",
        "a leader that the job has left takes its uploads from the one that has it",
    ),
    Mutant(
        "fulfilled-want-unanswered",
        "files/sources",
        "            if not want.fetching:\n"
        '                out.do.append(SendSource(peer.conn, want.want, sha256, want.size, "", ""))\n',
        "",
        "content that is wanted by hash and as a file of a cache leaves one of the two waiting for ever",
    ),
    Mutant(
        "given-up-source-stays-busy",
        "files/sources",
        "        want = self._want(conn, want_id)\n        if want is not None:\n            self._end(want)\n\n"
        "    def failed(",
        "        want = self._want(conn, want_id)\n        if want is not None and not want.fetching:\n"
        "            self._end(want)\n\n    def failed(",
        "a source that a worker gave up is busy until its deadline",
    ),
    Mutant(
        "second-want-of-a-retry-lost",
        "transfers/fetching",
        "            if fetch.source is not None:\n                fetch.source.keep(None)\n",
        "            if fetch.source is not None and not fetch.transfer.tries > 1:\n"
        "                fetch.source.keep(None)\n",
        "a want of a second try that a lost leader did not answer waits for ever",
    ),
    Mutant(
        "own-failure-keeps-the-source",
        "transfers/fetching",
        "    def _forget(self, fetch: Fetch) -> None:\n        self._free_source(fetch)\n",
        "    def _forget(self, fetch: Fetch) -> None:\n",
        "a source stays busy for a need that has ended",
    ),
    Mutant(
        "large-ones-take-all-turns",
        "transfers/fetching",
        "                    if is_one_too_many and fetch.size is Size.LARGE:\n",
        "                    if is_one_too_many and fetch.size is Size.UNKNOWN:\n",
        "large files of caches hold up all others",
    ),
    Mutant(
        "one-too-many-not-told",
        "transfers/fetching",
        "                        self._free_source(fetch)\n                        continue\n",
        "                        continue\n",
        "a large file that is one too many keeps its source, and is wanted of it again",
    ),
    Mutant(
        "joined-fetch-unheard",
        "transfers/fetching",
        "            if promise is not None:\n                promise.keep(outcome)\n",
        "            if promise is not None:\n"
        "                if isinstance(outcome, Arrived):\n                    promise.keep(outcome)\n",
        "a need that waits for another fetch of its content never hears that it failed",
    ),
    Mutant(
        "turn-in-line-lost",
        "transfers/fetching",
        "            if turn.is_kept:\n                self._give_back(fetch.size)\n            else:",
        "            if turn.is_kept:\n                pass\n            else:",
        "a want that is dropped when its turn comes takes the turn along",
    ),
    Mutant(
        "leader-without-blobs-awaited",
        "transfers/fetching",
        "            if self._has_none:\n                raise _no_blobs(fetch.need)\n",
        "",
        "a fetch that fails beside a leader without blobs waits for another leader",
    ),
    Mutant(
        "unwanted-fetch-goes-on",
        "transfers/fetching",
        "                self._stop_unless_awaited(fetch)\n                fetch.told_failure",
        "                fetch.told_failure",
        "content that no job needs is tried again, and forgotten in the middle of it",
    ),
    Mutant(
        "busy-place-not-asked-again",
        "transfers/downloads",
        "            if error.code in _BUSY:\n",
        "            if error.code in _BUSY and _transfer.tries < 3:\n",
        "a download gives up a busy place after three tries",
    ),
    Mutant(
        "refused-download-tried-again",
        "transfers/downloads",
        '_BUSY: Final = frozenset({"full", "blob-busy"})',
        '_BUSY: Final = frozenset({"full", "blob-busy", "no-blob"})',
        "content that is not kept any more is asked for again and again",
    ),
    Mutant(
        "download-tried-for-ever",
        "transfers/downloads",
        "RetryRule(first_s=0.5, longest_s=8.0, tries_max=6)",
        "RetryRule(first_s=0.5, longest_s=8.0)",
        "a download never tells that its place is away",
    ),
    Mutant(
        "refused-connection-ends-a-download",
        "transfers/downloads",
        "        except Lost as error:\n            raise TryAgain(error) from None\n",
        '        except Lost as error:\n            if error.why == "refused":\n                raise\n'
        "            raise TryAgain(error) from None\n",
        "a download does not survive that its place is started anew",
    ),
    Mutant(
        "download-without-pauses",
        "transfers/downloads",
        "RetryRule(first_s=0.5, longest_s=8.0, tries_max=6)",
        "RetryRule(first_s=0.5, longest_s=8.0, at_once=3, tries_max=10)",
        "a place that has just been lost is asked again without a pause",
    ),
    Mutant(
        "dripping-sender-borne-with",
        "connections/line_connection",
        "        self.pace.came(size, waited_s)\n",
        "        self.pace.came(size)\n",
        "a sender of one byte a second holds a receive slot for ever",
    ),
    Mutant(
        "input-counted-twice",
        "connections/line_connection",
        "        self.left -= size\n",
        "        self.left -= min(self.left, 2 * size)\n",
        "an input counts as whole when half of it came, and the rest tears down the answer",
    ),
    Mutant(
        "small-pieces-do-not-count",
        "connections/pace",
        "        if self._came >= BODY_RECEIVED_MIN_BYTES:\n",
        "        if size >= BODY_RECEIVED_MIN_BYTES + 1:\n",
        "a steady sender of small pieces is cut off",
    ),
    Mutant(
        "sending-is-no-progress",
        "connections/pace",
        "        moved = max(self._unread - unread, dropped - self._dropped)\n",
        "        moved = self._unread - unread\n",
        "a client that sends all before it reads is cut off",
    ),
    Mutant(
        "slow-sender-keeps-its-slot",
        "connections/receive_slots",
        "            if self._rate(senders[loser], now) >= RECEIVE_BYTES_PER_S_MIN:\n",
        "            if self._rate(senders[loser], now) >= 0:\n",
        "senders that send next to nothing keep all others out",
    ),
    Mutant(
        "young-sender-loses-its-slot",
        "connections/receive_slots",
        "if age_s > self.grace_s else math.inf",
        "if age_s > 0.0 else math.inf",
        "a connection that has just begun counts as slow",
    ),
    Mutant(
        "small-receive-slot-leaks",
        "connections/receive_slots",
        "        if self._large.pop(sender, None) is None:\n            self._small.pop(sender, None)",
        "        self._large.pop(sender, None)",
        "slots of small inputs are never free again",
    ),
    Mutant(
        "stop-without-deadline",
        "node/answer_drain",
        "            self.due_at = now + DRAIN_DEADLINE_S\n",
        "            self.due_at = now + 100 * DRAIN_DEADLINE_S\n",
        "a node that stops waits for a program that runs for long",
    ),
    Mutant(
        "last-answer-cut-off",
        "node/answer_drain",
        "(not self.answering or",
        "(self.answering <= 1 or",
        "a node that stops does not wait for its last answer",
    ),
    Mutant(
        "full-node-forgets-results",
        "node/entrance",
        "    is_full = now.free <= 0 or not now.can_receive\n",
        "    is_full = not now.can_receive\n",
        "a full node is busy for those whose result it has",
    ),
    Mutant(
        "full-door-forgets-results",
        "node/entrance",
        "    is_full = now.free <= 0 or not now.can_receive\n",
        "    is_full = now.free <= 0\n",
        "a node without a receive slot is busy for those whose result it has",
    ),
    Mutant(
        "repeated-request-waits-for-ever",
        "leader/callers/session",
        "            request.goes_on = False\n            self.confirm(effect.job)",
        "            self.confirm(effect.job)",
        "a result that was delivered meanwhile comes without a receipt, and answers nobody",
    ),
    Mutant(
        "left-caller-not-released",
        "leader/callers/session",
        "self.left.pop(effect.job, None)\n        if left is not None and left.goes_on and not left.is_told:  #",
        "self.left.get(effect.job)\n        if left is not None and left.goes_on and not left.is_told:  #",
        "a caller that left keeps its session for ever",
    ),
    Mutant(
        "unread-result-confirmed",
        "leader/callers/session",
        "        elif is_stopping:\n            self.confirm(request.job)",
        "        else:\n            self.confirm(request.job)",
        "the result of a caller that was cut off counts as delivered at once",
    ),
    Mutant(
        "anothers-result-is-the-answer",
        "leader/callers/session",
        "        elif request.goes_on and not request.is_told:  # This",
        "        elif request.goes_on and not request:  # This",
        "a request under a used id gets the result of the caller that left, and no conflict",
    ),
    Mutant(
        "refusal-of-whom",
        "leader/callers/session",
        "        return job not in self.waiting and ((left := self.left.get(job)) is None or left.is_told)",
        "        return job not in self.waiting",
        "a request gets the receipt or the refusal of a caller that left",
    ),
    Mutant(
        "two-requests-in-one-session",
        "leader/callers/session",
        "        return job not in self.waiting and ((left := self.left.get(job)) is None or left.is_told)",
        "        return (left := self.left.get(job)) is None or left.is_told",
        "of two requests at once for one job, the first is never answered",
    ),
    Mutant(
        "second-caller-that-left-forgotten",
        "leader/callers/session",
        "            self.left[effect.job] = LeftJob(is_told=False, goes_on=False)",
        "            pass",
        "a session is closed while a failed job runs again for a caller that left",
    ),
    Mutant(
        "closed-session-says-nothing",
        "leader/callers/machine",
        '                session.close("full", effect.why)\n                self._close(session)',
        "                pass",
        "a request of one client too many waits for ever",
    ),
    Mutant(
        "gone-callers-not-looked-for",
        "leader/callers/machine",
        "            self._do.append(LookAtCallers(tuple(self.requests)))",
        "            self._do.append(LookAtCallers(()))",
        "a request whose caller left without a word stays",
    ),
    Mutant(
        "results-of-an-earlier-life-stay",
        "leader/callers/machine",
        "            self._do.append(TellLeader(ev.Claimed(session.conn, tuple(jobs))))",
        "            session.left.clear()",
        "a leader that was started anew keeps results of callers that never come back",
    ),
    Mutant(
        "cancel-ends-a-new-run",
        "leader/nodes/jobs",
        "        await self._unwanted.settled(one.job)\n",
        "",
        "a cancel under way ends the next run of the job",
    ),
    Mutant(
        "held-job-not-cancelled",
        "leader/nodes/jobs",
        "        if one is None and job not in self._held:\n",
        "        if one is None:\n",
        "a job of the leader's last life that is cancelled before it is sent again runs on",
    ),
    Mutant(
        "held-jobs-not-counted",
        "leader/nodes/jobs",
        "        self._health.offer(len(self.running), len(self.running) + len(self._held))\n",
        "        self._health.offer(len(self.running), len(self.running))\n",
        "slots of a node that has jobs of the leader's last life are lost",
    ),
    Mutant(
        "refused-is-not-begun",
        "leader/nodes/jobs",
        'if lost.why == "refused" and not one.may_know:',
        'if lost.why == "refused":',
        "a node that is started anew loses a job that it has done",
    ),
    Mutant(
        "stopping-is-busy",
        "leader/nodes/jobs",
        'if status == 423 or (code == "stopping" and one.may_know):',
        "if status == 423:",
        "a job that a stopping node runs is given to another",
    ),
    Mutant(
        "poison-for-ever",
        "leader/nodes/jobs",
        "if one.sends >= NODE_SENDS_MAX:",
        "if one.sends >= 1_000_000:",
        "a job that ends its node is sent to it for ever",
    ),
    Mutant(
        "envelope-for-an-older-node",
        "leader/nodes/jobs",
        "            elif status in _NOT_UNDERSTOOD and",
        "            elif status == 415 and",
        "a client is blamed for an envelope that its node does not understand",
    ),
    Mutant(
        "refused-envelope-as-form",
        "leader/nodes/jobs",
        "not (is_bare or as_form or reply.takes_envelopes):",
        "not (is_bare or as_form):",
        "a job that its node refused is sent to it once more, as a form",
    ),
    Mutant(
        "exchange-not-closed",
        "leader/nodes/jobs",
        "            self._state.emit(CloseExchange(one.exchange))",
        "            if one.job not in self._unwanted:\n                self._state.emit(CloseExchange(one.exchange))",
        "the request of a job that is not wanted any more stays open",
    ),
    Mutant(
        "cancel-tried-once",
        "leader/nodes/unwanted",
        "one.tries < _CANCEL_TRIES_MAX:\n",
        "one.tries < 1:\n",
        "a job whose cancel failed once runs on",
    ),
    Mutant(
        "slots-offered-twice",
        "leader/nodes/health",
        "max(self.report.running, self._others + running) - self.offered\n",
        "max(self.report.running, self._others + running)\n",
        "each poll offers the same free slots again",
    ),
    Mutant(
        "node-rests-for-ever",
        "leader/nodes/health",
        "            self._failures = self._faults = 0",
        "            self._faults = 0",
        "a node that is back gets no jobs",
    ),
    Mutant(
        "stalled-answer-awaited",
        "leader/nodes/jobs",
        "            self._state.emit(LookAtAnswers(asking))\n",
        "",
        "a node that stalls in the midst of an answer and answers polls holds its job for ever",
    ),
    Mutant(
        "slow-answer-cut-off",
        "connections/answer_pace",
        "        seen, self._seen = self._seen, dict(received)\n",
        "        seen = self._seen = dict(received)\n",
        "an answer that comes slowly and steadily is cut off at the first look",
    ),
    Mutant(
        "node-poll-without-deadline",
        "leader/nodes/machine",
        '        deadline = Deadline(self._flows, NODE_POLL_TIMEOUT_S, Lost(why, "slow"))',
        '        deadline = Deadline(self._flows, 1e9, Lost(why, "slow"))',
        "a node that once did not answer a poll is not asked again",
    ),
    Mutant(
        "moving-result-is-late",
        "leader/nodes/jobs",
        "            self._state.emit(PeerHeard(self._state.conn, moving=moving))\n",
        "",
        "a job whose large result is on its way counts as late, and runs again",
        "groups",
    ),
    Mutant(
        "job-on-its-way-not-counted",
        "leader/workers",
        "        if event.most:\n",
        "        if False:\n",
        "a node that is back is given one job too many, for the job on its way to it",
        "groups",
    ),
    Mutant(
        "result-given-to-one-caller",
        "leader/callers/session",
        "            request.goes_on = False\n            self.confirm(effect.job)",
        "            self.confirm(effect.job)",
        "a repeated request for a job at a node waits for ever",
        "groups",
    ),
    Mutant(
        "polls-end",
        "leader/nodes/machine",
        "        except Exception as error:  # Any other error counts as no answer.\n",
        "        except ZeroDivisionError as error:  # Any other error counts as no answer.\n",
        "a poll with an unforeseen answer is the last one",
    ),
    Mutant(
        "denial-forgotten",
        "access/rule_lists",
        '    if any(entry[0] == "!" and overlaps(entry[1:], pattern) for entry in entries):\n        return False\n',
        "",
        "a key names a subject that its rules deny",
    ),
    Mutant(
        "denied-name-allowed",
        "access/rule_lists",
        "is not None and (denied is None or denied.fullmatch(name) is None)",
        "is not None",
        "a key speaks for a client that its rules deny",
    ),
    Mutant(
        "overlaps-for-covers",
        "access/rule_lists",
        '    return covers([entry for entry in entries if entry[0] != "!"], pattern)',
        '    return any(overlaps(entry, pattern) for entry in entries if entry[0] != "!")',
        "a worker takes jobs of all subjects, because its rules allow some of them",
    ),
    Mutant(
        "role-not-compared",
        "access/decide",
        "    return need in RIGHTS_OF[identity.role]",
        "    return need in RIGHTS_OF[Role.ADMIN]",
        "a reader cancels, and a worker submits",
    ),
    Mutant(
        "revoked-key-kept",
        "access/key_ring",
        '    if key.revoked_at:\n        return "revoked"\n',
        "",
        "a revoked key is taken again",
    ),
    Mutant(
        "revoked-stays-connected",
        "access/key_ring",
        '        self._close(key.name, "revoked")\n',
        "",
        "the connections of a revoked key go on",
    ),
    Mutant(
        "expired-stays-connected",
        "access/key_ring",
        '            self._close(name, "expired")\n        if self._write_at',
        "            pass\n        if self._write_at",
        "the connections of an expired key go on",
    ),
    Mutant(
        "secret-not-compared",
        "access/key_ring",
        "        if not is_right:\n",
        "        if not (is_right or secret_hash):\n",
        "a wrong secret is taken",
    ),
    Mutant(
        "claim-of-another",
        "leader/clients",
        "job is None or not connection.sees(job) or (job.delivered",
        "job is None or (job.delivered",
        "a client claims the result of a client that it may not see",
    ),
    Mutant(
        "find-of-another",
        "leader/submits",
        "        if (job := self._jobs.get(job_id)) is not None and not connection.sees(job):\n",
        "        if (job := self._jobs.get(job_id)) is not None and not connection:\n",
        "a client hears which jobs of others there are",
    ),
    Mutant(
        "submit-of-another",
        "leader/submits",
        "            if connection.sight is not None and not may_repeat(connection.sight, job):",
        "            if connection.sight is not None and not connection.sight:",
        "a client attaches to a job of another by its id",
    ),
    Mutant(
        "cancel-of-another",
        "leader/admin/actions",
        "oldest_first(question.client, wanted, is_owned)",
        "oldest_first(question.client, wanted)",
        "a client cancels the jobs of others by a pattern",
    ),
    Mutant(
        "named-cancel-of-another",
        "leader/admin/actions",
        "            _check_owned(named, sight)\n",
        "",
        "a client cancels a job that it may only look at",
    ),
    Mutant(
        "letter-of-another",
        "leader/admin/answers",
        "[job for job in all_letters.values() if is_seen is None or is_seen(job.client.id)], []",
        "list(all_letters.values()), []",
        "a client lists the dead letters of others",
    ),
    Mutant(
        "jobs-of-another",
        "leader/admin/answers",
        "    if not (question.state or question.client or question.pattern or is_seen):",
        "    if not (question.state or question.client or question.pattern):",
        "a client lists the jobs of others",
    ),
    Mutant(
        "job-of-another",
        "leader/admin/answers",
        "    if job is None or not (sight is None or sight.sees(job.client.id)):",
        "    if job is None:",
        "a client asks about a job of another",
    ),
    Mutant(
        "worker-id-of-another",
        "leader/worker_keys",
        "        if bound == key:\n",
        "        if bound:\n",
        "a key poses as the worker of another key",
    ),
    Mutant(
        "own-id-refused",
        "leader/worker_keys",
        "        if bound == key:\n",
        "        if bound == key and record is None:\n",
        "a worker does not get its own id again",
    ),
    Mutant(
        "own-job-out-of-sight",
        "leader/jobs/same_request",
        "    return sight.sees(job.client.id) if job.state is not DONE or job.ok else sight.owns(job.client.id)",
        "    return sight.sees_all and (job.state is not DONE or job.ok)",
        "a client does not get its own job again",
    ),
)
