"""One client, several leaders: scripts of what the client's machine hears and says, and any life at all. (SPEC K2–K6)

Leaders are numbered 1, 2, 3 and dialled in this order, so their first connections have the same numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.kit.client_jobs import A, B, C, frame, job, submit

from wakugumi.core.client import events as fo
from wakugumi.core.client.events import ClientDo, ClientEvent, LeaderNo
from wakugumi.core.client.failover import Failover
from wakugumi.core.client.leaders import Choice
from wakugumi.core.client.stages import SEARCHED, UNSENT, Sent, Stage
from wakugumi.core.greeting import SILENT_LEFT, WELCOME_WITHIN_S
from wakugumi.core.ids import ConnId, Fate, JobId
from wakugumi.limits.client import (
    FIND_COMING_S,
    FIND_WITHIN_S,
    FULL_RETRY_FIRST_S,
    MUTE_MAX_S,
    RECONNECT_FIRST_S,
    RECONNECT_MAX_S,
)
from wakugumi.limits.wire import GIVEN_BYTES_MAX, SILENCE_MAX_S

D = TypeVar("D")

ONE, TWO, THREE = ConnId(1), ConnId(2), ConnId(3)
FIRST, SECOND, THIRD = LeaderNo(1), LeaderNo(2), LeaderNo(3)
GRACE_S = 10.0


def of(kind: type[D], do: Sequence[ClientDo]) -> list[D]:
    return [effect for effect in do if isinstance(effect, kind)]


class Script:
    """A machine with several leaders, its clock, and what it says."""

    def __init__(
        self,
        leaders: int = 3,
        cap: int = 10,
        choice: Choice = "least",
        grace_s: float = GRACE_S,
        chance: float = 0.5,
        *,
        old_leader: bool = True,
    ) -> None:
        numbers = [LeaderNo(no) for no in range(1, leaders + 1)]
        self.machine = Failover(
            lambda: chance, leaders=numbers, cap=cap, choice=choice, grace_s=grace_s, old_leader=old_leader
        )
        self.now = 100.0
        self.dials = {dial.leader: dial.conn for dial in of(fo.Dial, self.tick())}
        assert list(self.dials) == numbers

    def hear(self, *events: ClientEvent) -> list[ClientDo]:
        step = self.machine.handle(events, self.now)
        self.machine.check()
        return self._seen(list(step.do))

    def tick(self) -> list[ClientDo]:
        step = self.machine.tick(self.now)
        self.machine.check()
        wake_at = self.machine.wake_at()
        assert wake_at is None or wake_at > self.now
        return self._seen(list(step.do))

    def _seen(self, do: list[ClientDo]) -> list[ClientDo]:
        for dial in of(fo.Dial, do):
            if hasattr(self, "dials"):
                self.dials[dial.leader] = dial.conn
        return do

    def passes(self, seconds: float) -> list[ClientDo]:
        """Time passes, and every leader that serves shows that it lives."""
        until = self.now + seconds
        said: list[ClientDo] = []
        while (wake_at := self.machine.wake_at()) is not None and wake_at <= until:
            self.now = max(self.now, wake_at)
            for conn in self.machine.conns.values():
                if conn.own:
                    conn.received_at = self.now
            said += self.tick()
        self.now = until
        return [effect for effect in said if not isinstance(effect, fo.SendClientHeartbeat)]

    def connect(self, *leaders: LeaderNo, takes_cap: bool = True) -> list[ClientDo]:
        """Own leaders answer; what was said to the last one."""
        said: list[ClientDo] = []
        for leader in leaders:
            conn = self.dials[leader]
            self.hear(fo.Connected(conn))
            said = self.hear(fo.Welcomed(conn, takes_cap))
        return said

    def lose(self, leader: LeaderNo) -> list[ClientDo]:
        """Its connection is gone, or could not be made."""
        return self.hear(fo.Disconnected(self.dials.pop(leader), "gone"))

    def return_(self, leader: LeaderNo) -> list[ClientDo]:
        """It is dialled again, and answers."""
        while leader not in self.dials:
            wake_at = self.machine.wake_at()
            assert wake_at is not None
            self.passes(max(wake_at - self.now, 0.0) + 0.001)
        return self.connect(leader)

    def shares(self) -> list[int]:
        return [state.share for state in self.machine.states()]

    def frames(self, do: Sequence[ClientDo]) -> list[bytes]:
        """All that was submitted, to whomever."""
        return [data for effect in of(fo.SendFrames, do) for data in effect.frames]

    def in_flight(self) -> list[int]:
        return [state.in_flight for state in self.machine.states()]


@pytest.fixture
def three() -> Script:
    script = Script()
    script.connect(FIRST, SECOND, THIRD)
    return script


def three_with(*jobs: int) -> Script:
    """Each of three leaders has one of these jobs, the first the first."""
    script = Script()
    script.connect(FIRST, SECOND, THIRD)
    script.hear(*(submit(number) for number in jobs))
    return script


# The cap is divided (SPEC K2).


@pytest.mark.spec("K2")
@pytest.mark.parametrize(
    ("cap", "leaders", "shares"), [(10, 3, [4, 3, 3]), (9, 3, [3, 3, 3]), (2, 3, [1, 1, 0]), (1, 1, [1])]
)
def test_the_cap_is_divided_evenly_with_its_remainder(cap: int, leaders: int, shares: list[int]) -> None:
    script = Script(leaders, cap)
    script.connect(*script.dials)
    assert script.shares() == shares


@pytest.mark.spec("K2")
def test_each_hello_tells_the_share_that_its_leader_will_have() -> None:
    machine = Failover(lambda: 0.5, leaders=[FIRST, SECOND, THIRD], cap=10)
    assert list(machine.tick(0.0).do) == [fo.Dial(ONE, FIRST, 4), fo.Dial(TWO, SECOND, 3), fo.Dial(THREE, THIRD, 3)]


def test_a_hello_never_tells_less_than_one() -> None:
    machine = Failover(lambda: 0.5, leaders=[FIRST, SECOND], cap=1)
    assert [effect.cap for effect in of(fo.Dial, machine.tick(0.0).do)] == [1, 1]


@pytest.mark.spec("K2")
def test_the_cap_is_divided_anew_when_a_leader_goes_and_when_it_returns(three: Script) -> None:
    assert of(fo.SendCap, three.lose(SECOND)) == [fo.SendCap(ONE, 5), fo.SendCap(THREE, 5)]
    assert three.shares() == [5, 0, 5]
    assert of(fo.SendCap, three.return_(SECOND)) == [fo.SendCap(ONE, 4), fo.SendCap(THREE, 3)]
    assert three.shares() == [4, 3, 3]


def test_a_leader_that_does_not_take_caps_is_not_told_any() -> None:
    script = Script()
    assert not of(fo.SendCap, script.connect(FIRST, SECOND, THIRD, takes_cap=False))
    assert not of(fo.SendCap, script.lose(SECOND))
    assert script.shares() == [5, 0, 5]


def test_a_leader_without_a_share_gets_no_jobs() -> None:
    script = Script(3, 2)
    script.connect(FIRST, SECOND, THIRD)
    script.hear(*(submit(number) for number in range(9)))
    assert script.in_flight() == [5, 4, 0]


# Who gets a job (SPEC K2, K3).


@pytest.mark.spec("K2")
def test_a_job_goes_where_the_least_of_the_share_is_in_flight(three: Script) -> None:
    three.hear(*(submit(number) for number in range(20)))
    assert three.in_flight() == [8, 6, 6]
    (done,) = (one for one, record in three.machine.records.items() if record.at.leader == SECOND and one < job(3))
    three.hear(fo.ResultReceived(TWO, done, b""))
    assert three.hear(submit(50)) == [fo.SendFrames(TWO, [frame(50)])]


@pytest.mark.spec("K2")
def test_in_turn_each_leader_gets_the_next_job_whatever_it_has() -> None:
    script = Script(choice="round-robin")
    script.connect(FIRST, SECOND, THIRD)
    for number in range(6):
        (sent,) = of(fo.SendFrames, script.hear(submit(number)))
        assert sent.conn == ConnId(number % 3 + 1)
        script.hear(fo.ResultReceived(sent.conn, job(number), b""))
    script.lose(SECOND)
    sent = [of(fo.SendFrames, script.hear(submit(number)))[0].conn for number in range(10, 14)]
    assert sent == [ONE, THREE, ONE, THREE]


@pytest.mark.spec("K3")
def test_jobs_go_to_whoever_serves_while_others_cannot_be_reached() -> None:
    script = Script()
    script.lose(SECOND)
    script.connect(THIRD)
    assert script.hear(submit(1)) == [fo.SendFrames(THREE, [frame(1)])]


@pytest.mark.spec("K3")
def test_what_one_leader_refuses_for_now_goes_to_another_at_once() -> None:
    script = three_with(1)
    assert script.hear(fo.JobRefused(ONE, A, "full", "no room")) == [
        fo.Waiting(FIRST, "full", "no room"),
        fo.SendFrames(TWO, [frame(1)]),
    ]
    assert script.in_flight() == [0, 1, 0]
    for number in range(2, 6):
        (sent,) = of(fo.SendFrames, script.hear(submit(number)))
        assert sent.conn != ONE, "it is full"


def test_a_leader_that_was_full_gets_jobs_again_after_a_while() -> None:
    script = three_with(1)
    script.hear(fo.JobRefused(ONE, A, "full", "no room"))
    assert script.passes(FULL_RETRY_FIRST_S) == [fo.WaitingOver(FIRST, taken=False)]
    assert script.hear(submit(2)) == [fo.SendFrames(ONE, [frame(2)])]


def test_when_all_are_full_the_gate_closes_and_each_is_tried_again() -> None:
    script = three_with(1)
    script.hear(fo.JobRefused(ONE, A, "full", ""))
    script.hear(fo.JobRefused(TWO, A, "full", ""))
    said = script.hear(fo.JobRefused(THREE, A, "disk-full", ""))
    assert said == [fo.Waiting(THIRD, "disk-full", ""), fo.SubmitGate(False)]
    assert script.machine.unfinished == 1
    said = script.passes(FULL_RETRY_FIRST_S)
    assert of(fo.SendFrames, said) == [fo.SendFrames(ONE, [frame(1)])]


@pytest.mark.spec("K3")
def test_a_leader_that_does_not_read_is_passed_over(three: Script) -> None:
    assert three.hear(fo.LeaderBlocked(ONE, True)) == []
    assert three.hear(submit(1)) == [fo.SendFrames(TWO, [frame(1)])]


# What was sent stays, until the grace is over (SPEC K4, K5).


@pytest.mark.spec("K4")
def test_what_was_sent_stays_where_it_is_while_its_connection_lives() -> None:
    script = three_with(1, 2, 3)
    script.hear(fo.Receipts(ONE, [A]))
    assert script.passes(20 * SILENCE_MAX_S) == []
    assert script.in_flight() == [1, 1, 1]


@pytest.mark.spec("K5")
def test_a_leader_that_is_back_within_the_grace_is_asked_for_what_it_has() -> None:
    script = three_with(1, 2, 3)
    assert not of(fo.SendFrames, script.lose(FIRST)), "nobody else gets it yet"
    said = script.return_(FIRST)
    assert of(fo.SendClaims, said) == [fo.SendClaims(ConnId(4), [A])]
    assert not of(fo.SendFrames, script.passes(2 * GRACE_S))
    result = fo.ResultReceived(ConnId(4), A, b"done")
    assert script.hear(result) == [fo.Deliver([result]), fo.SendConfirms(ConnId(4), [A])]


@pytest.mark.spec("K5")
def test_after_the_grace_another_leader_adopts_the_job_as_the_same_bytes() -> None:
    script = three_with(1, 2, 3)
    script.lose(FIRST)
    assert not of(fo.SendFrames, script.passes(GRACE_S - 0.01))
    assert of(fo.SendFrames, script.passes(0.02)) == [fo.SendFrames(TWO, [frame(1)])]
    assert [state.adopted for state in script.machine.states()] == [0, 1, 0]
    result = fo.ResultReceived(TWO, A, b"done")
    assert script.hear(result) == [fo.Deliver([result]), fo.SendConfirms(TWO, [A])]


def test_the_grace_may_be_nothing_at_all() -> None:
    script = Script(2, grace_s=0.0)
    script.connect(FIRST, SECOND)
    script.hear(submit(1))
    assert of(fo.SendFrames, script.lose(FIRST)) == [fo.SendFrames(TWO, [frame(1)])]


def test_without_another_leader_a_lost_job_waits_for_whoever_serves_first() -> None:
    script = Script(2)
    script.connect(FIRST)
    script.lose(SECOND)
    script.hear(submit(1))
    script.lose(FIRST)
    assert not of(fo.SendFrames, script.passes(3 * GRACE_S))
    assert of(fo.SendFrames, script.return_(SECOND))[0].frames == [frame(1)]


def test_without_another_leader_a_lost_job_is_claimed_where_it_was_however_late() -> None:
    script = Script(2)
    script.connect(FIRST)
    script.lose(SECOND)
    script.hear(submit(1))
    script.lose(FIRST)
    script.passes(3 * GRACE_S)
    said = script.return_(FIRST)
    assert of(fo.SendClaims, said)[0].jobs == [A]
    assert not of(fo.SendFrames, said)


def adopted() -> Script:
    """Leader 1 was lost with a job, which leader 2 has adopted, and is back."""
    script = three_with(1, 2, 3)
    script.lose(FIRST)
    script.passes(GRACE_S + 0.1)
    assert script.in_flight() == [0, 2, 1]
    said = script.return_(FIRST)
    assert of(fo.SendClaims, said)[0].jobs == [A], "it may have the result already"
    return script


@pytest.mark.spec("K5")
@pytest.mark.parametrize("winner", [FIRST, SECOND])
def test_of_two_leaders_that_have_a_job_the_first_result_wins_and_the_other_is_told(winner: LeaderNo) -> None:
    script = adopted()
    loser = SECOND if winner == FIRST else FIRST
    script.hear(fo.Receipts(script.dials[FIRST], [A]))
    result = fo.ResultReceived(script.dials[winner], A, b"done")
    said = script.hear(result)
    assert of(fo.Deliver, said) == [fo.Deliver([result])]
    assert of(fo.SendCancels, said) == [fo.SendCancels(script.dials[loser], [A])]
    assert {(effect.conn, effect.jobs[0]) for effect in of(fo.SendConfirms, said)} == {
        (script.dials[winner], A),
        (script.dials[loser], A),
    }
    assert said.index(of(fo.SendCancels, said)[0]) < said.index(
        next(effect for effect in of(fo.SendConfirms, said) if effect.conn == script.dials[loser])
    ), "a confirm of what still runs would be lost"
    again = fo.ResultReceived(script.dials[loser], A, b"done as well")
    assert script.hear(again) == [fo.SendConfirms(script.dials[loser], [A])], "and delivered once"


@pytest.mark.spec("K5")
def test_a_leader_that_was_away_when_its_job_was_done_elsewhere_is_told_when_it_returns() -> None:
    script = three_with(1, 2, 3)
    script.lose(FIRST)
    script.passes(GRACE_S + 0.1)
    script.hear(fo.ResultReceived(TWO, A, b"done"))
    for _ in range(3):
        said = script.return_(FIRST)
        conn = script.dials[FIRST]
        assert fo.SendCancels(conn, [A]) in said
        assert fo.SendConfirms(conn, [A]) in said
        assert not of(fo.SendClaims, said)
        script.lose(FIRST)


def test_a_leader_that_forgot_an_adopted_job_changes_nothing() -> None:
    script = adopted()
    assert script.hear(fo.JobRefused(script.dials[FIRST], A, "unknown-job", "")) == []
    result = fo.ResultReceived(TWO, A, b"done")
    assert script.hear(result) == [fo.Deliver([result]), fo.SendConfirms(TWO, [A])]


def test_when_the_one_that_adopted_a_job_is_lost_too_the_first_one_still_has_it() -> None:
    script = adopted()
    script.hear(fo.Receipts(script.dials[FIRST], [A]))
    script.lose(SECOND)
    assert script.in_flight() == [1, 0, 1], "B waits for the second"
    said = script.passes(GRACE_S + 0.1)
    assert script.frames(said) == [frame(2)]
    result = fo.ResultReceived(script.dials[FIRST], A, b"done")
    assert of(fo.Deliver, script.hear(result)) == [fo.Deliver([result])]


def test_a_job_that_waits_for_one_leader_is_asked_from_another_that_may_have_it() -> None:
    script = three_with(1, 2, 3)
    script.lose(FIRST)
    script.passes(GRACE_S + 0.1)
    script.lose(SECOND)
    said = script.return_(FIRST)
    assert A in of(fo.SendClaims, said)[0].jobs
    script.hear(fo.Receipts(script.dials[FIRST], [A]))
    assert script.in_flight()[0] == 1
    said = script.passes(GRACE_S)
    assert frame(1) not in script.frames(said)


def test_a_job_that_failed_elsewhere_and_is_submitted_again_is_still_called_off_where_it_was() -> None:
    script = Script(2)
    script.connect(FIRST, SECOND)
    script.hear(submit(1))
    script.lose(FIRST)
    script.passes(GRACE_S + 0.1)
    script.hear(fo.ResultReceived(TWO, A, b"failed"), submit(1))
    said = script.return_(FIRST)
    assert fo.SendCancels(script.dials[FIRST], [A]) in said, "that was another run"


def test_an_adopted_job_that_is_refused_for_good_is_called_off_where_it_was() -> None:
    script = adopted()
    said = script.hear(fo.JobRefused(TWO, A, "conflict", "another request"))
    assert fo.GiveUp(A, "conflict", "another request") in said
    assert of(fo.SendCancels, said) == [fo.SendCancels(script.dials[FIRST], [A])]


# Cancel, claim, ask.


def test_a_leader_that_returns_to_a_job_that_was_cancelled_meanwhile_is_told_so() -> None:
    script = three_with(1, 2, 3)
    script.lose(FIRST)
    script.passes(GRACE_S + 0.1)
    script.hear(fo.Cancel([A]))
    assert of(fo.SendCancels, script.return_(FIRST)) == [fo.SendCancels(ConnId(4), [A])]


@pytest.mark.spec("L10")
def test_a_cancel_reaches_every_leader_that_may_have_the_job() -> None:
    script = adopted()
    assert {effect.conn for effect in of(fo.SendCancels, script.hear(fo.Cancel([A])))} == {script.dials[FIRST], TWO}


def test_a_cancel_of_a_job_whose_leader_is_away_is_said_when_it_returns() -> None:
    script = three_with(1, 2, 3)
    script.lose(FIRST)
    assert of(fo.GiveUp, script.hear(fo.Cancel([A])))[0].code == "cancelled"
    assert not of(fo.SendFrames, script.passes(2 * GRACE_S))
    assert fo.SendCancels(ConnId(4), [A]) in script.return_(FIRST)


def test_a_cancel_of_an_adopted_job_is_also_said_to_its_first_leader_when_it_returns() -> None:
    script = three_with(1, 2, 3)
    script.lose(FIRST)
    script.passes(GRACE_S + 0.1)
    assert of(fo.SendCancels, script.hear(fo.Cancel([A]))) == [fo.SendCancels(TWO, [A])]
    script.hear(fo.ResultReceived(TWO, A, b"cancelled"))
    assert fo.SendCancels(ConnId(4), [A]) in script.return_(FIRST)


def test_a_claim_is_asked_of_every_own_leader_and_given_up_when_all_do_not_know_it(three: Script) -> None:
    assert three.hear(fo.ClaimJob(A)) == [fo.SendClaims(conn, [A]) for conn in (ONE, TWO, THREE)]
    assert three.hear(fo.JobRefused(ONE, A, "unknown-job", "no")) == []
    assert three.hear(fo.JobRefused(THREE, A, "unknown-job", "no")) == []
    assert three.hear(fo.JobRefused(TWO, A, "unknown-job", "never heard")) == [
        fo.GiveUp(A, "unknown-job", "never heard")
    ]


def test_a_claim_is_not_given_up_while_a_leader_is_dialled_for_the_first_time() -> None:
    script = Script(2)
    script.connect(FIRST)
    script.hear(fo.ClaimJob(A))
    assert script.hear(fo.JobRefused(ONE, A, "unknown-job", "no")) == []
    assert fo.SendClaims(TWO, [A]) in script.connect(SECOND)
    result = fo.ResultReceived(TWO, A, b"done")
    assert script.hear(result) == [fo.Deliver([result]), fo.SendConfirms(TWO, [A])]


def test_a_claim_that_all_who_serve_do_not_know_is_given_up_when_the_others_cannot_be_reached() -> None:
    script = Script(2)
    script.connect(FIRST)
    script.hear(fo.ClaimJob(A), fo.JobRefused(ONE, A, "unknown-job", "no"))
    assert fo.GiveUp(A, "unknown-job", "no") in script.hear(fo.Disconnected(TWO, "refused"))


def test_a_claim_waits_out_the_grace_of_a_leader_that_is_lost(three: Script) -> None:
    """It may be the one that has the job: whoever hears "unknown" would submit it again, and run it twice."""
    three.hear(fo.ClaimJob(A))
    three.hear(
        fo.JobRefused(ONE, A, "unknown-job", ""), fo.JobRefused(TWO, A, "unknown-job", ""), fo.Receipts(THREE, [A])
    )
    assert not of(fo.GiveUp, three.lose(THIRD))
    assert not of(fo.GiveUp, three.passes(GRACE_S - 1))
    assert of(fo.GiveUp, three.passes(2)) == [fo.GiveUp(A, "unknown-job", "")]


def test_a_claim_that_a_silent_leader_may_know_is_not_called_unknown() -> None:
    script = Script(leaders=2)
    script.connect(FIRST)
    script.hear(fo.Connected(script.dials[SECOND]), fo.ClaimJob(A))
    script.passes(WELCOME_WITHIN_S)
    assert [give.code for give in of(fo.GiveUp, script.hear(fo.JobRefused(ONE, A, "unknown-job", "")))] == [
        "not-supported"
    ]


def test_a_cancelled_claim_is_also_called_off_at_a_leader_that_is_away() -> None:
    script = Script(leaders=2)
    script.connect(FIRST, SECOND)
    script.hear(fo.ClaimJob(A), fo.Receipts(ONE, [A]), fo.Receipts(TWO, [A]))
    script.lose(SECOND)
    assert of(fo.SendCancels, script.hear(fo.Cancel([A]))) == [fo.SendCancels(ONE, [A])]
    script.hear(fo.ResultReceived(ONE, A, b"cancelled"))
    said = script.return_(SECOND)
    assert of(fo.SendCancels, said) == [fo.SendCancels(script.dials[SECOND], [A])]


def test_a_removed_leader_that_has_a_job_of_someone_else_for_us_is_waited_for(three: Script) -> None:
    three.hear(fo.ClaimJob(A))
    three.hear(
        fo.JobRefused(ONE, A, "unknown-job", ""), fo.JobRefused(TWO, A, "unknown-job", ""), fo.Receipts(THREE, [A])
    )
    assert not of(fo.Parted, three.hear(fo.LeaderRemoved(THIRD)))
    result = fo.ResultReceived(THREE, A, b"done")
    said = three.hear(result)
    assert of(fo.Deliver, said) == [fo.Deliver([result])]
    assert of(fo.Parted, said) == [fo.Parted(THIRD, THREE)]


def test_a_result_of_an_earlier_run_is_no_answer_to_a_new_submit_and_its_leader_is_asked_again() -> None:
    script = three_with(1)  # the first has it
    script.lose(FIRST)
    script.passes(GRACE_S)  # … and another one adopts it
    script.return_(FIRST)
    first = script.dials[FIRST]
    adopter = next(no for no in (SECOND, THIRD) if script.in_flight()[no - 1])
    failed = fo.ResultReceived(script.dials[adopter], A, b"failed")
    assert of(fo.Deliver, script.hear(failed)) == [fo.Deliver([failed])]
    said = script.hear(*(submit(number) for number in range(1, 5)))  # each of the others gets some, too
    given = next(effect.conn for effect in of(fo.SendFrames, said) if frame(1) in effect.frames)
    others = [conn for conn in script.dials.values() if conn != given]
    for conn in others:
        assert not of(fo.Deliver, script.hear(fo.ResultReceived(conn, A, b"of another leader")))
    if given == first:
        said = script.hear(fo.ResultReceived(first, A, b"cancelled"))
        assert not of(fo.Deliver, said)
        assert fo.SendClaims(first, [A]) in said
    answer = fo.ResultReceived(given, A, b"done")
    assert of(fo.Deliver, script.hear(fo.Receipts(given, [A]), answer)) == [fo.Deliver([answer])]


# What is meant for one leader only.


@pytest.mark.spec("S5")
def test_what_is_meant_for_one_leader_is_given_to_no_other(three: Script) -> None:
    assert three.hear(fo.Submit(A, frame(1), SECOND)) == [fo.SendFrames(TWO, [frame(1)])]
    said = three.lose(SECOND)
    assert not of(fo.SendFrames, said)
    said = three.passes(GRACE_S + 1)
    assert not of(fo.SendFrames, said)
    assert [(give.job, give.code) for give in of(fo.GiveUp, said)] == [(A, "no-leader")]


@pytest.mark.spec("S5")
def test_what_is_meant_for_one_leader_is_claimed_there_when_it_is_back(three: Script) -> None:
    three.hear(fo.Submit(A, frame(1), SECOND))
    three.lose(SECOND)
    said = three.return_(SECOND)
    assert of(fo.SendClaims, said) == [fo.SendClaims(three.dials[SECOND], [A])]


@pytest.mark.parametrize("how", ["away", "removed", "full", "nobody"])
def test_what_is_meant_for_a_leader_that_takes_nothing_is_given_up(three: Script, how: str) -> None:
    if how == "away":
        three.lose(SECOND)
    elif how == "removed":
        three.hear(fo.LeaderRemoved(SECOND))
    said = three.hear(fo.Submit(A, frame(1), LeaderNo(9) if how == "nobody" else SECOND))
    if how == "full":
        said = three.hear(fo.JobRefused(TWO, A, "full", ""))
    assert [(give.job, give.code) for give in of(fo.GiveUp, said)] == [(A, "full" if how == "full" else "no-leader")]


def test_what_is_meant_for_a_leader_that_forgot_it_is_sent_there_again(three: Script) -> None:
    three.hear(fo.Submit(A, frame(1), SECOND))
    three.lose(SECOND)
    three.return_(SECOND)
    conn = three.dials[SECOND]
    assert three.hear(fo.JobRefused(conn, A, "unknown-job", "")) == [fo.SendFrames(conn, [frame(1)])]


def test_a_job_that_its_leader_does_not_know_is_sent_there_again_because_the_first_submit_may_still_arrive() -> None:
    script = three_with(1, 2, 3)
    script.hear(fo.ResultReceived(ONE, A, b"done"))  # Another leader has less to do.
    script.lose(SECOND)
    script.return_(SECOND)
    conn = script.dials[SECOND]
    assert script.hear(fo.JobRefused(conn, B, "unknown-job", "")) == [fo.SendFrames(conn, [frame(2)])]
    assert script.in_flight() == [0, 1, 1]


@pytest.mark.parametrize("why", ["full", "removed"])
def test_a_job_that_its_leader_does_not_know_and_does_not_take_goes_to_another_one(why: str) -> None:
    script = three_with(1, 2, 3, 4, 5)
    script.hear(fo.ResultReceived(ONE, A, b"done"))
    script.lose(SECOND)
    script.return_(SECOND)
    conn = script.dials[SECOND]
    script.hear(fo.JobRefused(conn, job(5), "unknown-job", ""))
    script.hear(fo.JobRefused(conn, job(5), "full", "") if why == "full" else fo.LeaderRemoved(SECOND))
    said = script.hear(fo.JobRefused(conn, B, "unknown-job", ""))
    assert [(send.conn in {ONE, THREE}, send.frames) for send in of(fo.SendFrames, said)] == [(True, [frame(2)])]


def test_that_a_job_is_unknown_is_no_answer_to_its_submit(three: Script) -> None:
    """It is the late answer to a claim before: the submit's own follows."""
    three.hear(fo.Submit(A, frame(1), SECOND))
    assert three.hear(fo.JobRefused(TWO, A, "unknown-job", "")) == []
    result = fo.ResultReceived(TWO, A, b"done")
    assert of(fo.Deliver, three.hear(fo.Receipts(TWO, [A]), result)) == [fo.Deliver([result])]


def test_a_claim_at_one_leader_waits_for_it_however_long_it_is_away(three: Script) -> None:
    assert three.hear(fo.ClaimJob(A, SECOND)) == [fo.SendClaims(TWO, [A])]
    three.lose(SECOND)
    assert not of(fo.GiveUp, three.passes(10 * GRACE_S))
    said = three.return_(SECOND)
    conn = three.dials[SECOND]
    assert of(fo.SendClaims, said) == [fo.SendClaims(conn, [A])]
    assert of(fo.GiveUp, three.hear(fo.JobRefused(conn, A, "unknown-job", "?"))) == [fo.GiveUp(A, "unknown-job", "?")]


def test_a_claim_at_one_leader_ends_when_that_one_is_removed(three: Script) -> None:
    three.hear(fo.ClaimJob(A, SECOND))
    three.lose(SECOND)
    assert [give.code for give in of(fo.GiveUp, three.hear(fo.LeaderRemoved(SECOND)))] == ["no-leader"]
    assert three.machine.unfinished == 0


def test_someone_elses_job_that_is_done_is_not_called_off_elsewhere(three: Script) -> None:
    three.hear(fo.ClaimJob(A))
    said = three.hear(fo.ResultReceived(TWO, A, b"done"))
    assert not of(fo.SendCancels, said)
    assert of(fo.SendConfirms, said) == [fo.SendConfirms(TWO, [A])]


def test_a_cancelled_claim_is_told_to_all_and_ends_when_nobody_knows_it(three: Script) -> None:
    three.hear(fo.ClaimJob(A))
    assert {effect.conn for effect in of(fo.SendCancels, three.hear(fo.Cancel([A])))} == {ONE, TWO, THREE}
    three.hear(fo.JobRefused(ONE, A, "unknown-job", ""), fo.JobRefused(TWO, A, "unknown-job", ""))
    three.lose(THIRD)
    assert three.machine.unfinished == 0


def test_a_question_goes_to_the_leader_that_is_named_or_to_the_first_that_serves(three: Script) -> None:
    assert three.hear(fo.Ask(b"q", b"any")) == [fo.SendFrames(ONE, [b"any"])]
    assert three.hear(fo.Ask(b"r", b"named", THIRD)) == [fo.SendFrames(THREE, [b"named"])]


def test_a_question_whose_leader_is_lost_is_asked_of_another_unless_it_was_named(three: Script) -> None:
    three.hear(fo.Ask(b"q", b"any"), fo.Ask(b"r", b"named", FIRST))
    assert of(fo.SendFrames, three.lose(FIRST)) == [fo.SendFrames(TWO, [b"any"])]
    assert fo.SendFrames(ConnId(4), [b"named"]) in three.return_(FIRST)
    assert three.hear(fo.QuestionAnswered(three.dials[FIRST], b"r", False, b"yes")) == [
        fo.AnswerQuestion(b"r", False, b"yes")
    ]


def test_a_question_for_a_leader_that_was_removed_has_no_answer(three: Script) -> None:
    three.lose(SECOND)
    three.hear(fo.Ask(b"q", b"named", SECOND))
    assert fo.NoAnswer(b"q", "no-leader", "the leader was removed") in three.hear(fo.LeaderRemoved(SECOND))


# They come and go.


@pytest.mark.spec("K6")
def test_each_leader_is_dialled_again_with_a_pause_of_its_own() -> None:
    script = Script(2)
    script.connect(SECOND)
    pauses = []
    for _ in range(8):
        (away,) = of(fo.Away, script.lose(FIRST))
        assert away.leader == FIRST
        pauses.append(away.retry_in_s)
        script.passes(away.retry_in_s)
    assert pauses == [min(RECONNECT_FIRST_S * 2**number, RECONNECT_MAX_S) for number in range(8)]
    assert of(fo.Away, script.lose(SECOND)) == [fo.Away(SECOND, "gone", RECONNECT_FIRST_S)]


def test_a_leader_that_is_added_gets_its_share(three: Script) -> None:
    fourth = LeaderNo(4)
    three.hear(fo.LeaderAdded(fourth))
    assert three.tick() == [fo.Dial(ConnId(4), fourth, 2)]
    said = three.connect(fourth)
    assert three.shares() == [3, 3, 2, 2]
    assert len(of(fo.SendCap, said)) == 2


def test_a_removed_leader_is_waited_for_and_then_left() -> None:
    script = three_with(1, 2, 3)
    said = script.hear(fo.LeaderRemoved(FIRST))
    assert script.shares() == [0, 5, 5]
    assert not of(fo.Parted, said)
    script.hear(*(submit(number) for number in range(10, 14)))
    assert script.in_flight() == [1, 3, 3]
    result = fo.ResultReceived(ONE, A, b"done")
    assert script.hear(result) == [
        fo.Deliver([result]),
        fo.SendConfirms(ONE, [A]),
        fo.Parted(FIRST, ONE),
    ]
    assert script.hear(fo.Disconnected(ONE, "we left")) == []
    assert len(script.machine.states()) == 2


def test_a_removed_leader_without_jobs_is_left_at_once(three: Script) -> None:
    assert of(fo.Parted, three.hear(fo.LeaderRemoved(SECOND))) == [fo.Parted(SECOND, TWO)]


def test_a_removed_leader_that_is_lost_gives_its_jobs_to_the_others_at_once() -> None:
    script = three_with(1, 2, 3)
    script.hear(fo.LeaderRemoved(FIRST))
    said = script.lose(FIRST)
    assert of(fo.Parted, said)
    assert of(fo.SendFrames, said) == [fo.SendFrames(TWO, [frame(1)])]


def test_a_leader_that_is_removed_while_it_is_away_is_not_waited_for() -> None:
    script = three_with(1, 2, 3)
    script.lose(FIRST)
    said = script.hear(fo.LeaderRemoved(FIRST))
    assert of(fo.Parted, said) == [fo.Parted(FIRST, ConnId(0))]
    assert of(fo.SendFrames, said) == [fo.SendFrames(TWO, [frame(1)])]


def test_a_leader_that_is_removed_while_it_is_dialled_is_hung_up_on() -> None:
    script = Script(2)
    assert of(fo.Parted, script.hear(fo.LeaderRemoved(SECOND))) == [fo.Parted(SECOND, TWO)]
    assert of(fo.HangUp, script.hear(fo.Connected(TWO)))[0].conn == TWO


def test_a_removed_leader_that_is_added_again_in_time_stays() -> None:
    script = three_with(1, 2, 3)
    script.hear(fo.LeaderRemoved(FIRST), fo.LeaderAdded(FIRST))
    assert script.shares() == [4, 3, 3]
    assert not of(fo.Parted, script.hear(fo.ResultReceived(ONE, A, b"")))


# Old ones, and those that never say a word.


def with_a_mute_one() -> Script:
    """The first leader serves, the second has accepted the connection and never said anything."""
    script = Script(2)
    script.connect(FIRST)
    script.hear(fo.Connected(TWO))
    assert fo.Ready(SECOND, TWO, old=True) in script.passes(WELCOME_WITHIN_S)
    return script


def test_a_leader_that_never_said_a_word_gets_one_job_at_a_time_until_its_first_result() -> None:
    script = with_a_mute_one()
    script.hear(*(submit(number) for number in range(1, 9)))
    assert script.in_flight() == [7, 1]
    (sent,) = (number for number, record in enumerate(script.machine.records.values(), 1) if record.at.leader == SECOND)
    script.hear(fo.ResultReceived(TWO, job(sent), b"done"))
    script.hear(*(submit(number) for number in range(10, 16)))
    assert script.in_flight() == [7, 6], "it is a leader, if an old one"


def test_a_leader_that_has_a_job_and_never_says_a_word_is_left_and_its_job_adopted_at_once() -> None:
    script = with_a_mute_one()
    script.hear(submit(1), submit(2))
    assert script.in_flight() == [1, 1]
    assert not of(fo.HangUp, script.passes(MUTE_MAX_S - 0.1))
    said = script.passes(0.2)
    assert of(fo.HangUp, said) == [fo.HangUp(TWO, "the leader has said nothing for 60 s, and has a job")]
    assert of(fo.SendFrames, said) == [fo.SendFrames(ONE, [frame(2)])]
    assert script.in_flight() == [2, 0]


def test_a_mute_leader_is_dialled_less_and_less_often() -> None:
    script = with_a_mute_one()
    pauses = []
    for number in range(1, 5):
        while script.in_flight()[1] == 0:
            script.hear(submit(100 * number + script.machine.unfinished))
        (away,) = of(fo.Away, script.passes(MUTE_MAX_S + 1))
        pauses.append(away.retry_in_s)
        script.passes(away.retry_in_s)
        script.hear(fo.Connected(script.dials[SECOND]))
        script.passes(WELCOME_WITHIN_S)
    assert pauses == [RECONNECT_FIRST_S, 2 * RECONNECT_FIRST_S, 4 * RECONNECT_FIRST_S, 8 * RECONNECT_FIRST_S]


def test_a_mute_leader_keeps_its_job_while_nobody_else_serves() -> None:
    script = with_a_mute_one()
    script.hear(submit(1), submit(2))
    script.lose(FIRST)
    assert not of(fo.HangUp, script.passes(10 * MUTE_MAX_S))


def test_where_an_own_leader_was_a_silent_one_is_left_each_leader_by_itself() -> None:
    script = three_with(1, 2, 3)
    script.lose(FIRST)
    for _ in range(SILENT_LEFT):
        script.passes(RECONNECT_MAX_S / 3)
        script.hear(fo.Connected(script.dials[FIRST]))
        assert of(fo.HangUp, script.passes(5.0))
    script.passes(RECONNECT_MAX_S)
    script.hear(fo.Connected(script.dials[FIRST]))
    assert of(fo.Ready, script.passes(WELCOME_WITHIN_S))[0].old


def test_an_old_leader_is_never_asked_told_or_claimed_from() -> None:
    script = with_a_mute_one()
    script.hear(submit(1), submit(2))
    said = script.hear(fo.ClaimJob(C), fo.Cancel([B, A]), fo.Ask(b"q", b"question"))
    assert {effect.conn for effect in said if isinstance(effect, fo.SendClaims | fo.SendCancels | fo.SendFrames)} == {
        ONE
    }
    assert of(fo.GiveUp, said)[0].job == B


@pytest.mark.spec("K5")
def test_what_an_old_leader_had_is_sent_there_again_if_it_is_back_within_the_grace() -> None:
    script = with_a_mute_one()
    script.hear(submit(1), submit(2))
    script.lose(SECOND)
    script.passes(RECONNECT_FIRST_S)
    script.hear(fo.Connected(script.dials[SECOND]))
    said = script.passes(WELCOME_WITHIN_S)
    assert of(fo.SendFrames, said) == [fo.SendFrames(script.dials[SECOND], [frame(2)])]


# Jobs whose files do not fit a frame.


def unfit(conn: ConnId, number: int) -> fo.Unfit:
    return fo.Unfit(conn, job(number), "too-big", "it takes frames only")


def one_that_takes_blobs_and_an_old_one(cap: int = 10) -> Script:
    """The first one is old."""
    script = Script(2, cap)
    script.hear(fo.Connected(ONE))
    script.hear(fo.Welcomed(ONE, True))
    script.hear(fo.Connected(TWO))
    script.hear(fo.Welcomed(TWO, True, takes_blobs=True))
    return script


def test_what_does_not_fit_one_leader_goes_to_one_that_takes_blobs() -> None:
    script = one_that_takes_blobs_and_an_old_one()
    assert script.hear(submit(1)) == [fo.SendFrames(ONE, [frame(1)])]
    assert script.hear(unfit(ONE, 1)) == [fo.SendFrames(TWO, [frame(1)])]
    assert script.in_flight() == [0, 1]
    assert script.hear(unfit(ONE, 1)) == [], "it is not there any more"
    script.hear(fo.JobRefused(TWO, A, "full", "later"))
    assert script.in_flight() == [0, 0], "it is not offered to the first one again"
    assert script.hear(submit(2)) == [fo.SendFrames(ONE, [frame(2)])], "others do not wait behind it"
    assert fo.SendFrames(TWO, [frame(1)]) in script.passes(1.0)
    assert of(fo.Deliver, script.hear(fo.ResultReceived(TWO, A, b"done")))


def sets_variables(conn: ConnId, number: int) -> fo.Unfit:
    return fo.Unfit(conn, job(number), "not-supported", "it takes no variables", env=True)


@pytest.mark.spec("U8")
def test_a_job_that_sets_variables_goes_to_a_leader_that_takes_them() -> None:
    script = Script(3)
    script.hear(*(fo.Connected(conn) for conn in (ONE, TWO, THREE)))
    script.hear(fo.Welcomed(ONE, True), fo.Welcomed(TWO, True, takes_blobs=True))
    script.hear(fo.Welcomed(THREE, True, takes_env=True))
    script.hear(submit(1), submit(2))
    assert script.hear(sets_variables(ONE, 1)) == [fo.SendFrames(THREE, [frame(1)])]
    assert script.in_flight() == [0, 1, 1]
    assert script.hear(unfit(THREE, 1)) == [fo.GiveUp(A, "too-big", "it takes frames only")], "no leader takes both"
    assert script.hear(sets_variables(TWO, 2)) == [fo.SendFrames(THREE, [frame(2)])]
    assert of(fo.Deliver, script.hear(fo.ResultReceived(THREE, B, b"done")))


@pytest.mark.spec("U8")
def test_jobs_that_need_different_things_do_not_wait_for_each_other() -> None:
    script = Script(3)
    script.hear(*(fo.Connected(conn) for conn in (ONE, TWO, THREE)))
    script.hear(fo.Welcomed(ONE, True), fo.Welcomed(TWO, True, takes_blobs=True))
    script.hear(fo.Welcomed(THREE, True, takes_env=True), fo.LeaderBlocked(THREE, True))
    script.hear(submit(1), submit(2), submit(3))
    script.hear(sets_variables(ONE, 1))
    assert script.hear(unfit(ONE, 3)) == [fo.SendFrames(TWO, [frame(3)])]
    assert fo.SendFrames(THREE, [frame(1)]) in script.hear(fo.LeaderBlocked(THREE, False))


def test_what_fits_no_leader_is_given_up_with_what_the_last_one_said() -> None:
    script = Script(2)
    script.connect(FIRST, SECOND)
    script.hear(submit(1))
    assert script.hear(unfit(ONE, 1)) == [fo.GiveUp(A, "too-big", "it takes frames only")]
    assert script.machine.unfinished == 0


def test_what_does_not_fit_waits_for_leaders_that_were_not_met_yet_and_no_longer() -> None:
    script = Script(2)
    script.connect(FIRST)
    script.hear(submit(1))
    assert not of(fo.GiveUp, script.hear(unfit(ONE, 1)))
    assert of(fo.GiveUp, script.lose(SECOND)) == [fo.GiveUp(A, "too-big", "it takes frames only")]


def test_what_does_not_fit_has_the_grace_of_a_leader_that_was_lost() -> None:
    script = one_that_takes_blobs_and_an_old_one()
    script.lose(SECOND)
    script.hear(submit(1))
    assert not of(fo.GiveUp, script.hear(unfit(ONE, 1)))
    assert of(fo.GiveUp, script.passes(GRACE_S + 1)) == [fo.GiveUp(A, "too-big", "it takes frames only")]


def test_what_does_not_fit_goes_to_a_leader_without_a_share_if_no_other_can_take_it() -> None:
    script = one_that_takes_blobs_and_an_old_one(cap=1)
    assert script.shares() == [1, 0]
    script.hear(submit(1))
    script.hear(submit(2))
    assert script.hear(unfit(ONE, 1), unfit(ONE, 2)) == [fo.SendFrames(TWO, [frame(1)])]
    assert fo.SendFrames(TWO, [frame(2)]) in script.hear(fo.ResultReceived(TWO, A, b"done"))


def test_a_welcome_that_came_in_between_makes_it_fit() -> None:
    script = Script(1)
    script.hear(fo.Connected(ONE))
    script.passes(WELCOME_WITHIN_S)
    script.hear(submit(1))
    said = script.hear(fo.Welcomed(ONE, True, takes_blobs=True), unfit(ONE, 1))
    assert of(fo.SendFrames, said) == [fo.SendFrames(ONE, [frame(1)])]


def test_what_does_not_fit_and_was_cancelled_or_meant_for_that_leader_ends() -> None:
    script = one_that_takes_blobs_and_an_old_one()
    script.hear(submit(1), fo.Submit(B, frame(2), FIRST))
    script.hear(fo.Cancel([A]))
    said = script.hear(unfit(ONE, 1), unfit(ONE, 2))
    assert [(each.job, each.code) for each in of(fo.GiveUp, said)] == [(A, "cancelled"), (B, "too-big")]


def asks(number: int) -> fo.Submit:
    """A job under an id of its user's."""
    return fo.Submit(job(number), frame(number), given=True)


def that_find(leaders: int = 3, cap: int = 9, **more: object) -> Script:
    """All of them say which jobs they know."""
    script = Script(leaders, cap, **more)  # type: ignore[arg-type]
    for conn in list(script.dials.values()):
        script.hear(fo.Connected(conn), fo.Welcomed(conn, True, finds=True))
    return script


@pytest.mark.spec("K8")
def test_a_given_id_is_sought_at_every_leader_and_sent_to_the_one_that_knows_it() -> None:
    script = that_find()
    said = script.hear(asks(1), asks(2))
    assert said == [fo.SendFinds(conn, [A, B]) for conn in (ONE, TWO, THREE)], "all of a turn in one question"
    assert script.hear(fo.JobsFound(ONE, "unknown", [A, B])) == []
    assert script.hear(fo.JobsFound(TWO, "known", [A])) == [fo.SendFrames(TWO, [frame(1)])]
    assert script.hear(fo.JobsFound(TWO, "unknown", [B])) == []
    assert script.hear(fo.JobsFound(THREE, "unknown", [A])) == []
    assert len(script.frames(script.hear(fo.JobsFound(THREE, "unknown", [B])))) == 1, "nobody knows it"
    result = fo.ResultReceived(TWO, A, b"done")
    assert of(fo.Deliver, script.hear(result)) == [fo.Deliver([result])]


@pytest.mark.spec("K8")
@pytest.mark.parametrize("event", [submit(1), fo.Submit(A, frame(1), SECOND, given=True)], ids=["drawn", "for one"])
def test_a_new_id_and_a_job_for_one_leader_are_not_sought(event: fo.Submit) -> None:
    assert of(fo.SendFrames, that_find().hear(event))


@pytest.mark.spec("K8")
def test_one_leader_and_leaders_that_cannot_be_asked_get_a_given_id_at_once() -> None:
    assert that_find(1).hear(asks(1)) == [fo.SendFrames(ONE, [frame(1)])]
    script = Script()
    script.connect(FIRST, SECOND, THIRD)
    assert len(of(fo.SendFrames, script.hear(asks(1)))) == 1


@pytest.mark.spec("K8", "L6")
def test_a_job_that_failed_somewhere_and_is_known_nowhere_goes_there_again() -> None:
    for conn in (ONE, TWO, THREE):
        script = that_find()
        script.hear(asks(1))
        said = [
            script.hear(fo.JobsFound(each, "failed" if each == conn else "unknown", [A])) for each in (ONE, TWO, THREE)
        ]
        assert said == [[], [], [fo.SendFrames(conn, [frame(1)])]]


@pytest.mark.spec("K8", "K2")
def test_the_hash_of_an_id_chooses_its_leader_in_every_life_while_the_load_is_even() -> None:
    names = ["a:1", "b:1", "c:1"]

    def chosen(order: list[str], numbers: list[int]) -> dict[bytes, str]:
        leaders = [LeaderNo(no) for no in range(1, 4)]
        machine = Failover(lambda: 0.5, leaders=leaders, names=order, cap=3_000)
        machine.tick(0.0)
        for conn in (ONE, TWO, THREE):
            machine.handle([fo.Connected(conn), fo.Welcomed(conn, True, finds=True)], 0.0)
        said = list(machine.handle([asks(number) for number in numbers], 0.0).do)
        jobs = [job(number) for number in numbers]
        for conn in (ONE, TWO, THREE):
            said += machine.handle([fo.JobsFound(conn, "unknown", jobs)], 0.0).do
        loads = [state.in_flight for state in machine.states()]
        assert max(loads) - min(loads) <= 0.25 * 1_000 + 1, "a quarter of a share"
        return {data: order[effect.conn - 1] for effect in of(fo.SendFrames, said) for data in effect.frames}

    first = chosen(names, list(range(600)))
    assert len(first) == 600
    assert first == chosen(["c:1", "a:1", "b:1"], list(range(599, -1, -1)))
    assert all(150 < count < 250 for count in Counter(first.values()).values()), "each has about a third"
    assert set(first.values()) == set(names)
    narrow = that_find(3, cap=3)
    for number in range(3):
        for conn in (None, ONE, TWO, THREE):
            narrow.hear(asks(number) if conn is None else fo.JobsFound(conn, "unknown", [job(number)]))
    assert narrow.in_flight() == [1, 1, 1], "no leader is left idle for the sake of a hash"


@pytest.mark.spec("K8")
def test_a_leader_that_does_not_answer_is_not_waited_for_and_its_late_word_counts() -> None:
    script = that_find(2)
    script.hear(asks(1))
    assert script.hear(fo.JobsFound(ONE, "unknown", [A])) == []
    assert script.frames(script.passes(FIND_WITHIN_S - 0.1)) == []
    assert len(script.frames(script.passes(0.2))) == 1
    assert of(fo.SendFinds, script.hear(asks(2))) == [fo.SendFinds(ONE, [B])], "it still owes an answer"
    assert len(script.frames(script.hear(fo.JobsFound(ONE, "unknown", [B])))) == 1
    home = next(state.leader for state in script.machine.states() if state.in_flight)
    if home == SECOND:  # The hash chose the one that said nothing: there is no second leader then.
        assert script.hear(fo.JobsFound(TWO, "known", [A])) == []
        return
    assert script.hear(fo.JobsFound(TWO, "known", [A])) == [fo.SendClaims(TWO, [A])]
    result = fo.ResultReceived(TWO, A, b"done")
    said = script.hear(result)
    assert of(fo.Deliver, said) == [fo.Deliver([result])]
    assert fo.SendCancels(ONE, [A]) in said, "the loser is told"


@pytest.mark.spec("K8")
@pytest.mark.parametrize("stage", [UNSENT, SEARCHED])
def test_a_leader_that_was_late_is_asked_for_what_nobody_was_sent_since(stage: Stage) -> None:
    script = that_find(2)
    script.hear(asks(1))
    script.hear(fo.JobsFound(ONE, "unknown", [A]))
    script.passes(FIND_WITHIN_S + 0.1)
    if stage is UNSENT:
        script.hear(fo.LeaderBlocked(ONE, True), fo.LeaderBlocked(TWO, True))
    assert of(fo.SendFinds, script.hear(asks(2))) == [fo.SendFinds(ONE, [B])]
    if stage is UNSENT:
        script.hear(fo.JobsFound(ONE, "unknown", [B]))
    assert script.machine.records[B].at is stage
    assert script.hear(fo.JobsFound(TWO, "unknown", [A])) == [fo.SendFinds(TWO, [B])]
    script.hear(fo.LeaderBlocked(ONE, False) if stage is UNSENT else fo.JobsFound(ONE, "unknown", [B]))
    assert script.hear(fo.JobsFound(TWO, "known", [B])) == [fo.SendFrames(TWO, [frame(2)])]


HALF = bytes(GIVEN_BYTES_MAX // 2)
"""Two of them are all that a leader is given before they are written."""


def known_and_large(count: int) -> tuple[Script, list[ClientDo]]:
    """The first of two leaders knows them all; and what it is sent."""
    script = that_find(2)
    jobs = [job(number) for number in range(count)]
    script.hear(*(fo.Submit(one, HALF + one, given=True) for one in jobs))
    script.hear(fo.JobsFound(TWO, "unknown", jobs))
    return script, script.hear(fo.JobsFound(ONE, "known", jobs))


def numbers(script: Script, do: Sequence[ClientDo]) -> list[int]:
    return [data[-1] for data in script.frames(do)]


@pytest.mark.spec("K8", "L9")
def test_what_a_leader_knows_is_sent_a_few_at_a_time() -> None:
    script, said = known_and_large(5)
    assert numbers(script, said) == [0, 1]
    assert of(fo.TellWhenLeaderWritten, said) == [fo.TellWhenLeaderWritten(ONE)]
    assert script.in_flight() == [5, 0], "they belong to it all the same"
    said = script.hear(fo.LeaderWritten(ONE))
    assert numbers(script, said) == [2, 3]
    assert of(fo.TellWhenLeaderWritten, said) == [fo.TellWhenLeaderWritten(ONE)]
    assert numbers(script, script.hear(fo.LeaderWritten(ONE))) == [4]
    for number in range(5):
        assert of(fo.Deliver, script.hear(fo.ResultReceived(ONE, job(number), b"done")))
    assert script.machine.unfinished == 0


@pytest.mark.spec("K8", "L10")
def test_a_job_that_is_cancelled_before_its_turn_is_not_sent() -> None:
    script, _ = known_and_large(4)
    said = script.hear(fo.Cancel([C]))
    assert [give_up.job for give_up in of(fo.GiveUp, said)] == [C]
    assert fo.SendCancels(ONE, [C]) in said, "it has it from an earlier life"
    assert numbers(script, script.hear(fo.LeaderWritten(ONE))) == [2]


@pytest.mark.spec("K8", "L6")
def test_a_result_that_comes_before_the_request_was_sent_is_no_answer() -> None:
    script, _ = known_and_large(3)
    assert of(fo.Deliver, script.hear(fo.ResultReceived(ONE, A, b"")))
    assert not of(fo.Deliver, script.hear(fo.ResultReceived(ONE, B, b"of another request?")))
    assert numbers(script, script.hear(fo.LeaderWritten(ONE))) == [2]
    assert of(fo.Deliver, script.hear(fo.ResultReceived(ONE, B, b"")))


@pytest.mark.spec("K8", "K5")
def test_a_leader_that_is_lost_is_claimed_from_also_what_it_was_not_sent() -> None:
    script, _ = known_and_large(3)
    script.lose(FIRST)
    assert of(fo.SendClaims, script.return_(FIRST)) == [fo.SendClaims(script.dials[FIRST], [job(0), A, B])]


def test_an_old_leader_is_not_sent_again_what_it_has_answered_meanwhile() -> None:
    script = Script(1)
    script.hear(fo.Connected(ONE))
    script.passes(WELCOME_WITHIN_S + 0.1)
    for number in range(4):
        script.hear(fo.Submit(job(number), HALF + job(number)), fo.LeaderWritten(ONE))
    script.lose(FIRST)
    while FIRST not in script.dials:
        script.passes(0.1)
    conn = script.dials[FIRST]
    script.hear(fo.Connected(conn))
    assert numbers(script, script.passes(WELCOME_WITHIN_S + 0.1)) == [0, 1]
    assert of(fo.Deliver, script.hear(fo.ResultReceived(conn, job(2), b"")))
    assert numbers(script, script.hear(fo.LeaderWritten(conn))) == [3]


@pytest.mark.spec("K8")
def test_a_leader_that_is_being_connected_is_waited_for_and_asked() -> None:
    script = Script(2)
    script.hear(fo.Connected(ONE), fo.Welcomed(ONE, True, finds=True))
    assert of(fo.SendFinds, script.hear(asks(1))) == [fo.SendFinds(ONE, [A])]
    assert script.hear(fo.JobsFound(ONE, "unknown", [A])) == []
    script.hear(fo.Connected(TWO))
    said = script.hear(fo.Welcomed(TWO, True, finds=True))
    assert (of(fo.SendFinds, said), of(fo.SendFrames, said)) == ([fo.SendFinds(TWO, [A])], [])
    assert of(fo.SendFrames, script.hear(fo.JobsFound(TWO, "known", [A]))) == [fo.SendFrames(TWO, [frame(1)])]


@pytest.mark.spec("K8")
@pytest.mark.parametrize("how", ["refused", "hangs", "greets no one", "old"])
def test_a_leader_that_cannot_be_asked_holds_nothing_up_for_long(how: str) -> None:
    script = Script(2)
    script.hear(fo.Connected(ONE), fo.Welcomed(ONE, True, finds=True))
    script.hear(asks(1))
    assert script.hear(fo.JobsFound(ONE, "unknown", [A])) == []
    said: list[ClientDo] = []
    if how == "refused":
        said = script.lose(SECOND)
    elif how == "old":
        said = script.hear(fo.Connected(TWO), fo.Welcomed(TWO, True))
    elif how == "greets no one":
        said = script.hear(fo.Connected(TWO))
    if how in {"hangs", "greets no one"}:
        assert script.frames(said) == []
        said = script.passes(FIND_COMING_S + 0.1)
    assert len(script.frames(said)) == 1


@pytest.mark.spec("K8")
def test_a_leader_that_comes_back_with_a_job_that_others_have_by_now_is_asked_for_it() -> None:
    script = that_find(2)
    script.lose(SECOND)
    script.hear(asks(1), submit(2))
    assert script.frames(script.hear(fo.JobsFound(ONE, "unknown", [A]))) == [frame(1)]
    while SECOND not in script.dials:
        script.passes(0.1)
    conn = script.dials[SECOND]
    said = script.hear(fo.Connected(conn), fo.Welcomed(conn, True, finds=True))
    assert of(fo.SendFinds, said) == [fo.SendFinds(conn, [A])]
    assert script.hear(fo.JobsFound(conn, "known", [A])) == [fo.SendClaims(conn, [A])]
    said = script.hear(fo.ResultReceived(conn, A, b"done"))
    assert of(fo.Deliver, said)
    assert fo.SendCancels(ONE, [A]) in said


@pytest.mark.spec("K8")
@pytest.mark.parametrize("number", range(1, 6))  # The hash of their ids chooses now one leader, now the other.
def test_a_given_job_that_its_leader_does_not_know_is_sent_there_again_once_others_have_answered(number: int) -> None:
    script = that_find(2)
    script.lose(FIRST)
    script.hear(asks(number))
    assert script.frames(script.hear(fo.JobsFound(TWO, "unknown", [job(number)]))) == [frame(number)]
    script.lose(SECOND)
    for leader in (FIRST, SECOND):
        while leader not in script.dials:
            script.passes(0.1)
        conn = script.dials[leader]
        said = script.hear(fo.Connected(conn), fo.Welcomed(conn, True, finds=True))
    assert of(fo.SendClaims, said) == [fo.SendClaims(conn, [job(number)])]
    assert script.hear(fo.JobRefused(conn, job(number), "unknown-job", "")) == [], "the other one may know it"
    said = script.hear(fo.JobsFound(script.dials[FIRST], "unknown", [job(number)]))
    assert said == [fo.SendFrames(conn, [frame(number)])]


@pytest.mark.spec("K8")
def test_when_a_second_leader_is_added_the_first_is_asked_for_the_jobs_that_wait() -> None:
    """The only leader is sent everything, so it need not be asked; but it is full, and knows the job."""
    script = that_find(1)
    assert script.frames(script.hear(asks(1))) == [frame(1)]
    script.hear(fo.JobRefused(ONE, A, "full", ""))
    assert of(fo.SendFinds, script.hear(fo.LeaderAdded(SECOND))) == [fo.SendFinds(ONE, [A])]
    assert script.hear(fo.JobsFound(ONE, "known", [A])) == [fo.SendFrames(ONE, [frame(1)])]


@pytest.mark.spec("K8", "L10")
def test_a_job_that_is_cancelled_while_it_is_sought_is_cancelled_wherever_it_may_be() -> None:
    script = that_find(2)
    script.hear(asks(1))
    said = script.hear(fo.Cancel([A]))
    assert [cancel.conn for cancel in of(fo.SendCancels, said)] == [ONE, TWO]
    assert [given_up.code for given_up in of(fo.GiveUp, said)] == ["cancelled"]
    assert script.hear(fo.JobsFound(ONE, "known", [A]), fo.JobsFound(TWO, "unknown", [A])) == []


def test_a_job_that_is_lost_again_and_again_does_not_fill_the_queue_with_its_name() -> None:
    """It waits behind another one, for a leader that does not read; each time that is lost, it is put there again."""
    script = Script(2, grace_s=0.0)
    script.connect(FIRST)
    script.hear(submit(1))
    script.lose(FIRST)
    script.hear(submit(2))
    for _ in range(300):
        while FIRST not in script.dials:
            script.passes(0.5)
        conn = script.dials[FIRST]
        script.hear(fo.Connected(conn))
        script.hear(fo.Welcomed(conn), fo.LeaderBlocked(conn, True))
        script.lose(FIRST)
    assert script.machine.unfinished == 2
    assert len(script.machine._unfinished.unsent.without_need) < 100


class Place:
    """A leader as the oracle knows it: it keeps what it has over all connections, unless it forgets."""

    def __init__(self, no: LeaderNo, own: bool) -> None:
        self.no = no
        self.own = own
        self.blobs = False
        self.env = False
        self.finds = False
        self.dialling: ConnId | None = None
        self.conn: ConnId | None = None
        self.served = False
        self.has: set[JobId] = set()
        """Jobs that it runs, or whose results it keeps for us."""
        self.on_line: set[JobId] = set()
        """Of these, those that it was sent or asked for over this connection."""
        self.unknown: list[JobId] = []
        """Asked for over this connection, and it has still to say that it does not know them."""
        self.before: set[JobId] = set()
        """Those that it has from an earlier life of the client."""
        self.questions: dict[JobId, float] = {}
        """Whether it knows these it has still to say, the oldest first."""
        self.lost_at = -1e9
        self.removed = False

    def is_late(self, now: float) -> bool:
        return bool(self.questions) and next(iter(self.questions.values())) + FIND_WITHIN_S <= now


class AnyLives(RuleBasedStateMachine):
    """Whatever several leaders, networks and a user do: no job is lost, none ends twice, none is sent elsewhere while
    its leader is there or may be back in time, and in the end no leader keeps anything for us."""

    @initialize(
        count=st.integers(1, 3),
        cap=st.integers(1, 7),
        turns=st.booleans(),
        grace_s=st.sampled_from([0.0, 10.0]),
        met=st.booleans(),
    )
    def begin(self, count: int, cap: int, turns: bool, grace_s: float, met: bool) -> None:
        """`met`: all leaders serve from the beginning."""
        self.now = 1000.0
        self.grace_s = grace_s
        self.cap = cap
        self.places = {LeaderNo(no): Place(LeaderNo(no), own=True) for no in range(1, count + 1)}
        self.made = count
        self.machine = Failover(
            lambda: 0.5,
            leaders=list(self.places),
            cap=cap,
            choice="round-robin" if turns else "least",
            grace_s=grace_s,
            old_leader=True,
        )
        self.wanted: set[JobId] = set()
        self.called_off: set[JobId] = set()
        self.claims: set[JobId] = set()
        self.mute: set[LeaderNo] = set()
        self.large: set[JobId] = set()
        self.sets: set[JobId] = set()
        self.given: set[JobId] = set()
        self.count = 0
        self.tick(0.0)
        for place in self.places.values() if met else ():
            self.answer_dial(place, "finds")

    def by_conn(self, conn: ConnId) -> Place:
        return next(place for place in self.places.values() if conn in {place.conn, place.dialling})

    def step(self, do: Sequence[ClientDo]) -> None:
        """What one step asks for happens at once: the user hears of an end before anyone is told about it."""
        for effect in sorted(do, key=lambda effect: not isinstance(effect, fo.Deliver | fo.GiveUp)):
            self.look(effect)

    def look(self, effect: ClientDo) -> None:
        match effect:
            case fo.Dial(conn, no, cap):
                place = self.places[no]
                assert place.dialling is None
                assert place.conn is None
                assert 1 <= cap <= self.cap
                place.dialling = conn
            case fo.HangUp(conn, why):
                place = next((place for place in self.places.values() if place.conn == conn), None)
                if place is not None:
                    if "nothing for" in why:
                        self.mute.add(place.no)
                    self.ended(place)
            case fo.SendFrames(conn, frames):
                for data in frames:
                    self.sent(self.by_conn(conn), job(int(data.split()[1])))
            case fo.SendClaims(conn, claimed):
                place = self.by_conn(conn)
                assert place.own
                assert len(set(claimed)) == len(claimed)
                for one in claimed:
                    assert one not in place.on_line, "never twice over one connection"
                    assert one not in place.unknown
                    if one in place.has:
                        place.on_line.add(one)
                    else:
                        place.unknown.append(one)
            case fo.SendFinds(conn, jobs):
                place = self.by_conn(conn)
                assert place.finds
                assert len(self.places) > 1
                for one in jobs:
                    assert one in self.given
                    assert one not in place.questions, "never twice over one connection"
                    place.questions[one] = self.now
            case fo.SendCancels(conn, jobs):
                place = self.by_conn(conn)
                assert place.own
                for one in jobs:
                    assert one in self.called_off or one not in self.wanted, "nobody wanted that"
                    if one not in self.claims:
                        place.has.discard(one)
                        if one in place.on_line:
                            place.on_line.discard(one)
                            self.owed.append((conn, one))
            case fo.SendConfirms(conn, jobs):
                place = self.by_conn(conn)
                assert place.own
                for one in jobs:
                    assert one not in self.wanted
                    if one not in self.claims:
                        place.has.discard(one)
                        place.on_line.discard(one)
            case fo.SendCap(conn, cap):
                assert self.by_conn(conn).own
                assert 1 <= cap <= self.cap
            case fo.Deliver(results):
                for result in results:
                    self.wanted.remove(result.job)
            case fo.GiveUp(gone):
                self.wanted.remove(gone)
            case fo.Parted(no, conn):
                place = self.places.pop(no)
                assert place.removed
                assert not place.on_line & self.wanted - self.claims or self.served_elsewhere(place)
            case _:
                pass

    def served_elsewhere(self, place: Place) -> bool:
        return any(other is not place for other in self.places.values())

    owed: list[tuple[ConnId, JobId]]

    def sent(self, place: Place, one: JobId) -> None:
        """A submit. Whoever else may have this job has been away for longer than the grace, or is old or forgot it."""
        assert place.conn is not None
        assert one not in place.on_line, "never twice over one connection"
        assert one in self.wanted
        assert place.blobs or not place.own or one not in self.large, "it does not fit there"
        assert place.env or not place.own or one not in self.sets, "it takes no variables"
        for other in self.places.values():
            if other is place or one not in other.has:
                continue
            if other.conn is not None and other.served:
                assert not other.own or one not in other.on_line, "a living connection carries it"
            elif one in other.before:
                pass  # It cannot be asked.
            elif other.no not in self.mute and not other.removed:
                assert self.now >= other.lost_at + self.grace_s - 1e-6, "it may be back in time"
            if other.served and other.finds and one in other.before and one not in place.has and not other.removed:
                assert other.is_late(self.now), "it knows the job, and nobody waited for it to say so"
        place.has.add(one)
        place.on_line.add(one)

    def ended(self, place: Place) -> None:
        if place.served:
            place.lost_at = self.now
        place.conn = None
        place.served = False
        place.on_line.clear()
        place.unknown.clear()
        place.questions.clear()

    def hear(self, *events: ClientEvent) -> None:
        self.owed = []
        self.step(self.machine.handle(events, self.now).do)
        for place in self.places.values():
            place.served = any(conn.id == place.conn and conn.ready for conn in self.machine.conns.values())
        owed, self.owed = self.owed, []
        for conn, one in owed:  # A leader answers a cancel with a result.
            if any(place.conn == conn for place in self.places.values()):
                self.hear(fo.ResultReceived(conn, one, b"cancelled"))

    @rule(seconds=st.sampled_from([0.05, 0.5, 3.0, 9.0, 31.0]))
    def tick(self, seconds: float) -> None:
        until = self.now + seconds
        while (wake_at := self.machine.wake_at()) is not None and wake_at <= until:
            self.now = max(self.now, wake_at)
            self.owed = []
            self.step(self.machine.tick(self.now).do)
            for place in self.places.values():
                place.served = any(conn.id == place.conn and conn.ready for conn in self.machine.conns.values())
        self.now = until

    @rule(many=st.integers(1, 5))
    def submit(self, many: int) -> None:
        events = [submit(self.count + number) for number in range(many)]
        self.count += many
        self.wanted |= {event.job for event in events}
        self.hear(*events)

    @rule(data=st.data(), many=st.integers(1, 5))
    def submit_as_before(self, data: st.DataObject, many: int) -> None:
        """Under ids that an earlier life may have submitted, to one leader or several."""
        events = [msgspec.structs.replace(submit(self.count + number), given=True) for number in range(many)]
        self.count += many
        jobs = {event.job for event in events}
        for no in data.draw(st.sets(st.sampled_from(sorted(self.places)), max_size=2)) if self.places else ():
            self.places[no].has |= jobs
            self.places[no].before |= jobs
        self.wanted |= jobs
        self.given |= jobs
        self.hear(*events)

    @precondition(lambda self: any(place.questions for place in self.places.values()))
    @rule(data=st.data(), many=st.integers(1, 5))
    def say_found(self, data: st.DataObject, many: int) -> None:
        place = self.places[data.draw(st.sampled_from(sorted(no for no, p in self.places.items() if p.questions)))]
        self.tell_found(place, list(place.questions)[:many], data.draw(st.sampled_from(["unknown", "failed"])))

    def tell_found(self, place: Place, jobs: list[JobId], else_: Fate) -> None:
        assert place.conn is not None
        for one in jobs:
            del place.questions[one]
        known = [one for one in jobs if one in place.has]
        events = [
            fo.JobsFound(place.conn, "known", known),
            fo.JobsFound(place.conn, else_, list(set(jobs) - set(known))),
        ]
        self.hear(*(event for event in events if event.jobs))

    @rule(data=st.data(), known=st.booleans())
    def claim(self, data: st.DataObject, known: bool) -> None:
        one = job(10**6 + self.count)
        self.count += 1
        self.claims.add(one)
        self.wanted.add(one)
        if known and self.places:
            self.places[data.draw(st.sampled_from(sorted(self.places)))].has.add(one)
        self.hear(fo.ClaimJob(one))

    @precondition(lambda self: any(place.dialling for place in self.places.values()))
    @rule(data=st.data(), how=st.sampled_from(["own", "blobs", "env", "finds", "finds", "old", "refused"]))
    def dialled(self, data: st.DataObject, how: str) -> None:
        no = data.draw(st.sampled_from(sorted(no for no, place in self.places.items() if place.dialling)))
        self.answer_dial(self.places[no], how)

    def answer_dial(self, place: Place, how: str) -> None:
        conn, place.dialling = place.dialling, None
        assert conn is not None
        if how == "refused":
            self.hear(fo.Disconnected(conn, "refused"))
            return
        place.conn = conn
        place.own = how in {"own", "blobs", "env", "finds"}
        place.blobs = how in {"blobs", "finds"}
        place.env = how in {"env", "finds"}
        place.finds = how == "finds"
        self.hear(fo.Connected(conn))
        if place.own:
            self.hear(fo.Welcomed(conn, True, place.blobs, place.finds, place.env))

    @precondition(lambda self: any(place.conn for place in self.places.values()))
    @rule(data=st.data(), forgets=st.booleans(), swallows=st.booleans())
    def lose(self, data: st.DataObject, forgets: bool, swallows: bool) -> None:
        place = self.places[data.draw(st.sampled_from(sorted(no for no, place in self.places.items() if place.conn)))]
        conn = place.conn
        assert conn is not None
        if forgets:
            place.has.clear()
        elif swallows and place.on_line:
            place.has.discard(max(place.on_line))
        self.ended(place)
        self.hear(fo.Disconnected(conn, "gone"))

    @precondition(lambda self: any(place.on_line for place in self.places.values()))
    @rule(data=st.data(), answer=st.sampled_from(["receipt", "result", "result", "full", "disk-full", "bad-name"]))
    def answer(self, data: st.DataObject, answer: str) -> None:
        place = self.places[data.draw(st.sampled_from(sorted(no for no, p in self.places.items() if p.on_line)))]
        one = data.draw(st.sampled_from(sorted(place.on_line)))
        conn = place.conn
        assert conn is not None
        if answer == "receipt":
            if place.own:
                self.hear(fo.Receipts(conn, [one]))
        elif answer == "result" or one in self.claims or not place.own:
            place.on_line.discard(one)
            if not place.own or one in self.claims:
                place.has.discard(one)
            self.hear(fo.ResultReceived(conn, one, b""))
        else:
            record = self.machine.records.get(one)
            if record is not None and not record.may_have:  # What it was asked for, it has.
                place.on_line.discard(one)
                place.has.discard(one)
                self.hear(fo.JobRefused(conn, one, answer, ""))

    @precondition(lambda self: any(p.on_line and not (p.blobs and p.env) for p in self.places.values()))
    @rule(data=st.data(), env=st.booleans())
    def does_not_fit(self, data: st.DataObject, env: bool) -> None:
        rows = sorted(no for no, place in self.places.items() if place.on_line and not (place.blobs and place.env))
        place = self.places[data.draw(st.sampled_from(rows))]
        env = place.blobs or (env and not place.env)
        one = data.draw(st.sampled_from(sorted(place.on_line)))
        record = self.machine.records.get(one)
        if place.conn is None or record is None or record.may_have or type(record.at) is not Sent or record.at.accepted:
            return  # It was never sent there in vain: it has it.
        place.on_line.discard(one)
        place.has.discard(one)
        (self.sets if env else self.large).add(one)
        self.hear(fo.Unfit(place.conn, one, "too-big", "", env))

    @precondition(lambda self: any(place.unknown for place in self.places.values()))
    @rule(data=st.data())
    def say_unknown(self, data: st.DataObject) -> None:
        place = self.places[data.draw(st.sampled_from(sorted(no for no, p in self.places.items() if p.unknown)))]
        assert place.conn is not None
        self.hear(fo.JobRefused(place.conn, place.unknown.pop(0), "unknown-job", ""))

    @precondition(lambda self: any(place.conn for place in self.places.values()))
    @rule(data=st.data(), on=st.booleans())
    def block(self, data: st.DataObject, on: bool) -> None:
        place = self.places[data.draw(st.sampled_from(sorted(no for no, place in self.places.items() if place.conn)))]
        assert place.conn is not None
        self.hear(fo.LeaderBlocked(place.conn, on))

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(sorted(self.wanted)))
        self.called_off.add(one)
        self.hear(fo.Cancel([one]))

    @rule()
    def add(self) -> None:
        if len(self.places) < 4:
            self.made += 1
            no = LeaderNo(self.made)
            self.places[no] = Place(no, own=True)
            self.hear(fo.LeaderAdded(no))

    @precondition(lambda self: len(self.places) > 1)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        no = data.draw(st.sampled_from(sorted(self.places)))
        self.places[no].removed = True
        self.hear(fo.LeaderRemoved(no))

    @invariant()
    def holds(self) -> None:
        self.machine.check()
        assert self.machine.unfinished == len(self.wanted)

    def teardown(self) -> None:
        """Give it good leaders for long enough, and everything ends; and nobody keeps anything for us."""
        if not hasattr(self, "machine"):
            return
        if all(place.removed for place in self.places.values()):
            self.add()
        for _ in range(300):
            for place in list(self.places.values()):
                if place.dialling is not None:
                    self.answer_dial(place, "finds")
                if place.conn is None:
                    continue
                if not place.own:
                    conn = place.conn
                    self.ended(place)
                    self.hear(fo.Disconnected(conn, "gone"))
                    continue
                self.hear(fo.HeartbeatReceived(place.conn), fo.LeaderBlocked(place.conn, False))
                while place.conn is not None and place.unknown:
                    self.hear(fo.JobRefused(place.conn, place.unknown.pop(0), "unknown-job", ""))
                if place.conn is not None and place.questions:
                    self.tell_found(place, list(place.questions), "unknown")
                for one in sorted(place.on_line):
                    if place.conn is not None and one in place.on_line:
                        place.on_line.discard(one)
                        self.hear(fo.ResultReceived(place.conn, one, b""))
            self.machine.check()
            self.tick(3.0)
            there = [place for place in self.places.values() if place.conn is not None and place.own]
            if not self.wanted and len(there) == len(self.places):
                kept = Counter({place.no: len(place.has - self.claims - place.before) for place in there})
                assert not kept.total(), f"leaders still keep jobs for us: {kept}"
                return
        raise AssertionError(f"{len(self.wanted)} jobs never ended")


TestAnyLives = AnyLives.TestCase
TestAnyLives.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
