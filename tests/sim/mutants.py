"""Is the simulator worth anything? Bugs planted on purpose, as data: each must be found, and by a seed that we know.

A mutant is a text of the core that stands there exactly once, and what stands there instead. `world_of` compiles the
changed file into fresh modules: the real ones stay as they are. `mutant_seeds.txt` names a seed that finds each mutant,
and is a good world without it. A change of the core may change that world, so the search begins there and goes on from
seed 1; `python -m tests.sim --mutants --pin` writes the file anew.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tests.sim.gateways.world import GatewayWorld
from tests.sim.world import World

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

    @property
    def world(self) -> type[World | GatewayWorld]:
        """The worlds in which it can be found."""
        is_gateway = self.file.startswith(("gateway/", "flows"))
        module, name = ("gateways.world", "GatewayWorld") if is_gateway else ("world", "World")
        world: type[World | GatewayWorld] = getattr(importlib.import_module(f"tests.sim.{module}"), name)
        return world


def world_of(mutant: Mutant) -> type[World | GatewayWorld]:
    """The simulated world, on a core with this bug in it."""
    finder = _Finder(mutant)
    kept = {name: module for name, module in sys.modules.items() if _is_fresh(name)}
    parents = {name: (sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2]) for name in _ROOTS}
    roots = {name: getattr(parent, attribute, None) for name, (parent, attribute) in parents.items()}
    for name in kept:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        made = importlib.import_module(mutant.world.__module__)
        world: type[World | GatewayWorld] = getattr(made, mutant.world.__name__)
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
        "            if job is None or (job.delivered and _is_cancelled(job)):",
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
        "        return not request or (wanted := self._digest(payload)) == request or not wanted",
        "        return bool(payload)",
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
        "            left = self._counts[file] - 1\n            if left:\n",
        "            left = self._counts.get(file, 1) - 1\n            if left > 1:\n",
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
)
