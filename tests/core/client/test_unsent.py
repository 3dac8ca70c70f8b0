"""The queues of jobs that wait to be sent."""

from __future__ import annotations

from wakugumi.core.client.events import LeaderNo
from wakugumi.core.client.stages import SEARCHED, UNSENT, Sent, UnfinishedJob
from wakugumi.core.client.unsent import STALE_NAMES_MAX, UnsentQueues
from wakugumi.core.ids import JobId


def job(number: int) -> JobId:
    return JobId(number.to_bytes(16, "big"))


class Waiting:
    def __init__(self) -> None:
        self.records: dict[JobId, UnfinishedJob] = {}
        self.queues = UnsentQueues(self.records)

    def add(self, number: int, needs: int = 0) -> UnfinishedJob:
        record = self.records[job(number)] = UnfinishedJob(b"%d" % number, needs=needs)
        self.queues.add(job(number), record)
        self.queues.check()
        return record


def test_jobs_wait_in_the_order_in_which_they_came() -> None:
    waiting = Waiting()
    records = [waiting.add(number) for number in range(3)]
    for record in records:
        assert waiting.queues.head(waiting.queues.without_need, 0) is record
        waiting.queues.without_need.popleft()
    assert waiting.queues.head(waiting.queues.without_need, 0) is None


def test_a_job_that_only_some_leaders_take_holds_nobody_up() -> None:
    waiting = Waiting()
    picky, easy = waiting.add(1, needs=2), waiting.add(2)
    assert waiting.queues.head(waiting.queues.without_need, 0) is easy
    assert waiting.queues.head(waiting.queues.by_need[2], 2) is picky


def test_a_job_that_waits_no_more_or_elsewhere_is_skipped() -> None:
    waiting = Waiting()
    sent, gone, searched, moved, last = (waiting.add(number) for number in range(5))
    sent.at = Sent(LeaderNo(1))
    assert waiting.records.pop(job(1)) is gone
    searched.at = SEARCHED
    moved.needs = 1
    waiting.queues.add(job(3), moved)
    assert waiting.queues.head(waiting.queues.without_need, 0) is last
    assert list(waiting.queues.without_need) == [job(4)]


def test_names_of_jobs_that_are_sent_again_and_again_do_not_pile_up() -> None:
    waiting = Waiting()
    record = waiting.add(1)
    for _ in range(10 * STALE_NAMES_MAX):
        record.at = Sent(LeaderNo(1))
        record.at = UNSENT
        waiting.queues.add(job(1), record)
        waiting.queues.check()
    assert waiting.queues.head(waiting.queues.without_need, 0) is record
