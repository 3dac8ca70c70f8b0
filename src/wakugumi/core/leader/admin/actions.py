"""How do cancel, requeue, drop, drain and resume change a leader's state? (SPEC L3)

Questions that change nothing are answered in `answers`.
"""

from __future__ import annotations

from collections.abc import Sequence

from wakugumi.core.access.identity import Sight
from wakugumi.core.ids import show_job_id
from wakugumi.core.leader.admin import answers, overview
from wakugumi.core.leader.answer_records import Answer, CancelAnswer, DeadDoneAnswer
from wakugumi.core.leader.events import QuestionAsked, SendAnswer, SendNo
from wakugumi.core.leader.jobs.broadcast import owner_of
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.journal.recovery import keep_whole
from wakugumi.core.leader.questions import AskCancel, AskDrain, AskDrop, AskRequeue, AskResume
from wakugumi.core.leader.records import JobRecord
from wakugumi.core.leader.state import LeaderState
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.errors import Refused
from wakugumi.limits.journal import JOURNAL_MOVED_BYTES_MAX
from wakugumi.limits.leader import BROADCAST_DEADLINE_S, CANCELLED_AT_ONCE_MAX


class AdminActions:
    """Questions and orders of administrators to one leader."""

    def __init__(self, leader: LeaderState, out: StepBuilder) -> None:
        self._leader = leader
        self._out = out

    def asked(self, event: QuestionAsked, now: float) -> None:
        """Cancel, requeue and drop are answered once they are committed, all else at once: a slow disk must not delay
        a report about it."""
        question = event.question
        out = self._out.do if isinstance(question, AskCancel | AskRequeue | AskDrop) else self._out.at_once
        try:
            if isinstance(question, AskCancel):
                answer: Answer = self.cancel_all(question, now, event.sight)
            elif isinstance(question, AskRequeue | AskDrop):
                answer = self._settle_dead(question, now, event.sight)
            elif isinstance(question, AskDrain | AskResume):
                worker = answers.worker_called(self._leader, question.worker)
                self._leader.workers.drain(worker, isinstance(question, AskDrain))
                answer = overview.worker_row(worker, now)
            else:
                answer = answers.answer(self._leader, question, now, event.sight)
        except Refused as no:
            out.append(SendNo(event.conn, event.ask_id, no.code, no.message))
        else:
            out.append(SendAnswer(event.conn, event.ask_id, answer))

    def cancel_all(self, question: AskCancel, now: float, sight: Sight | None = None) -> CancelAnswer:
        """Raises Refused for a named job that the sight shows but does not own."""
        is_owned = None if sight is None else sight.owns
        unknown: list[str] = []
        wanted = answers.parse_wanted(question.pattern)
        if question.jobs:
            named, unknown = answers.named(self._leader.jobs, question.jobs, answers.seen_by(sight))
            _check_owned(named, sight)
            matching = [job for job in named if answers.is_wanted(job, question.client, wanted)]
        elif question.client or question.pattern:
            goes = self._leader.clients.is_forgettable
            found = self._leader.jobs.oldest_first(question.client, wanted, is_owned)
            matching = [job for job in found if job.state is not DONE or (question.forget and goes(job))]
        else:
            raise Refused("bad-request", "say which jobs: ids, a client, or a pattern")
        open_jobs = [job for job in matching if job.state is not DONE]
        todo = matching if question.forget else open_jobs
        done = todo[:CANCELLED_AT_ONCE_MAX]
        cancelled = sum(self._leader.lifecycle.cancel(job, now) for job in done)
        forgotten = sum(self._leader.clients.forget(job, now) for job in done) if question.forget else 0
        finished = len(done) - cancelled if question.forget else len(matching) - len(open_jobs)
        return CancelAnswer(cancelled, finished, unknown, forgotten, len(todo) - len(done))

    def _settle_dead(self, question: AskRequeue | AskDrop, now: float, sight: Sight | None) -> DeadDoneAnswer:
        is_seen = answers.seen_by(sight) if question.jobs or sight is None else sight.owns
        letters, unknown = answers.letters(self._leader, question.jobs, question.pattern, question.reason, is_seen)
        _check_owned(letters, sight)
        written, done = self._leader.leaves.written_bytes, 0
        for job in letters:
            if isinstance(question, AskDrop):
                self._leader.clients.drop_letter(job)
            else:
                self._requeue(job, now)
            done += 1
            if self._leader.leaves.written_bytes - written >= JOURNAL_MOVED_BYTES_MAX:
                break
        return DeadDoneAnswer(done, unknown, len(letters) - done)

    def _requeue(self, dead: JobRecord, now: float) -> None:
        """Open a dead job again, as if it had just been submitted (SPEC L3)."""
        self._leader.clients.withdraw(dead)
        self._leader.clients.unbury(dead)
        client = self._leader.clients.get_or_add(dead.client.id)
        client.cap = client.cap or dead.client.cap
        job = self._leader.lifecycle.reopen(dead, client, now)
        if owner_of(job.subject) is not None:
            self._leader.lifecycle.deadlines.add(job.id, now + BROADCAST_DEADLINE_S)
        if self._leader.durable:
            keep_whole(job, self._out, self._leader.lifecycle, now)
        self._leader.lifecycle.queue(job)


def _check_owned(jobs: Sequence[JobRecord], sight: Sight | None) -> None:
    foreign = None if sight is None else next((job for job in jobs if not sight.owns(job.client.id)), None)
    if foreign is not None:
        raise Refused("denied", f"job {show_job_id(foreign.id)} belongs to another client")
