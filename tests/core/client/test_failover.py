"""The client's state machine: every test is a script of what it hears and what it then asks for, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.kit.client_jobs import A, B, C, frame, job, submit

from wakugumi.core.client import events as fo
from wakugumi.core.client.events import ClientDo, ClientEvent, LeaderNo
from wakugumi.core.client.failover import Failover
from wakugumi.core.client.leaders import SAYS_NOTHING
from wakugumi.core.greeting import SILENT_LEFT, WELCOME_AGAIN_WITHIN_S, WELCOME_WITHIN_S
from wakugumi.core.ids import ConnId, JobId
from wakugumi.limits.client import FULL_RETRY_FIRST_S, FULL_RETRY_MAX_S, RECONNECT_FIRST_S, RECONNECT_MAX_S
from wakugumi.limits.leader import CLIENT_CAP_DEFAULT
from wakugumi.limits.wire import HEARTBEAT_S, SILENCE_MAX_S

ONE, TWO = ConnId(1), ConnId(2)
HERE = LeaderNo(1)
"""The only leader."""
CAP = CLIENT_CAP_DEFAULT


class Script:
    """A machine, its clock, and what it says."""

    def __init__(self, chance: float = 0.5, *, embedded: bool = False, old_leader: bool = True) -> None:
        self.machine = Failover(lambda: chance, embedded=embedded, old_leader=old_leader)
        self.now = 100.0
        assert self.machine.wake_at() is not None
        assert self.tick() == [fo.Dial(ONE, HERE, CAP)]

    def hear(self, *events: ClientEvent) -> list[ClientDo]:
        step = self.machine.handle(events, self.now)
        self.machine.check()
        assert not step.keep
        return list(step.do)

    def tick(self) -> list[ClientDo]:
        step = self.machine.tick(self.now)
        self.machine.check()
        wake_at = self.machine.wake_at()
        assert wake_at is None or wake_at > self.now
        return list(step.do)

    def wait_until(self, wanted: type[ClientDo], within_s: float) -> list[ClientDo]:
        """Let time pass as the machine asks for it, until it asks for this."""
        until = self.now + within_s
        while (wake_at := self.machine.wake_at()) is not None and wake_at <= until:
            self.now = max(wake_at, self.now)
            do = self.tick()
            if any(isinstance(effect, wanted) for effect in do):
                return do
        raise AssertionError(f"no {wanted.__name__} within {within_s} s")

    def connect(self, conn: ConnId = ONE) -> list[ClientDo]:
        """A leader of our own answers."""
        self.hear(fo.Connected(conn))
        return self.hear(fo.Welcomed(conn))

    def connect_old(self, conn: ConnId = ONE) -> list[ClientDo]:
        self.hear(fo.Connected(conn))
        return self.wait_until(fo.Ready, WELCOME_WITHIN_S)

    def meet_silent_ones(self, conn: ConnId) -> ConnId:
        """They are left, one after the other, until the next one would be taken for an old leader: its number."""
        for _ in range(SILENT_LEFT):
            self.hear(fo.Connected(conn))
            assert fo.HangUp(conn, "the leader did not greet within 5 s") in self.wait_until(fo.HangUp, 5.0)
            self.hear(fo.Disconnected(conn, "we left"))
            self.wait_until(fo.Dial, 60)
            conn = ConnId(conn + 1)
        return conn


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def connected() -> Script:
    script = Script()
    assert script.connect() == [fo.Ready(HERE, ONE, old=False), fo.SubmitGate(True)]
    return script


def test_a_job_goes_from_submit_to_its_confirmed_result(connected: Script) -> None:
    assert connected.hear(submit(1)) == [fo.SendFrames(ONE, [frame(1)])]
    assert connected.hear(fo.Receipts(ONE, [A])) == [fo.Accepted([A])]
    result = fo.ResultReceived(ONE, A, b"done")
    assert connected.hear(result) == [fo.Deliver([result]), fo.SendConfirms(ONE, [A])]
    assert connected.machine.unfinished == 0


def test_what_happens_in_one_turn_is_said_in_one_breath(connected: Script) -> None:
    assert connected.hear(submit(1), submit(2), submit(3)) == [fo.SendFrames(ONE, [frame(1), frame(2), frame(3)])]
    results = [fo.ResultReceived(ONE, A, b"a"), fo.ResultReceived(ONE, B, b"b")]
    assert connected.hear(results[0], submit(4), results[1]) == [
        fo.SendFrames(ONE, [frame(4)]),
        fo.Deliver(results),
        fo.SendConfirms(ONE, [A, B]),
    ]


@pytest.mark.spec("F9")
def test_a_second_result_is_confirmed_and_dropped(connected: Script) -> None:
    connected.hear(submit(1))
    result = fo.ResultReceived(ONE, A, b"done")
    assert connected.hear(result, result) == [fo.Deliver([result]), fo.SendConfirms(ONE, [A, A])]
    assert connected.hear(result) == [fo.SendConfirms(ONE, [A])]


def test_jobs_wait_for_the_first_connection(script: Script) -> None:
    assert script.hear(submit(1)) == []
    assert script.hear(fo.Connected(ONE)) == []
    assert script.hear(fo.Welcomed(ONE)) == [
        fo.Ready(HERE, ONE, old=False),
        fo.SendFrames(ONE, [frame(1)]),
        fo.SubmitGate(True),
    ]


@pytest.mark.spec("K4")
def test_what_was_sent_is_not_sent_again_while_its_connection_lives(connected: Script) -> None:
    assert connected.hear(submit(1)) == [fo.SendFrames(ONE, [frame(1)])]
    for _ in range(5):
        connected.now += HEARTBEAT_S
        assert connected.tick() == [fo.SendClientHeartbeat(ONE)]
        assert connected.hear(fo.HeartbeatReceived(ONE)) == []


@pytest.mark.spec("K6")
def test_after_a_loss_the_next_leader_is_asked_for_what_was_sent_before_it_is_sent_again(connected: Script) -> None:
    connected.hear(submit(1), submit(2), submit(3), fo.Receipts(ONE, [A]))
    connected.hear(fo.ResultReceived(ONE, B, b"done"))
    assert connected.hear(fo.Disconnected(ONE, "gone")) == [
        fo.Away(HERE, "gone", RECONNECT_FIRST_S),
        fo.SubmitGate(False),
    ]
    assert connected.hear(submit(4)) == []
    assert connected.wait_until(fo.Dial, RECONNECT_FIRST_S) == [fo.Dial(TWO, HERE, CAP)]
    assert connected.connect(TWO) == [
        fo.Ready(HERE, TWO, old=False),
        fo.SendConfirms(TWO, [B]),
        fo.SendFrames(TWO, [frame(4)]),
        fo.SendClaims(TWO, [A, C]),
        fo.SubmitGate(True),
    ]
    assert connected.hear(fo.Receipts(TWO, [A])) == [fo.Accepted([A])]
    assert connected.hear(fo.JobRefused(TWO, C, "unknown-job", "")) == [fo.SendFrames(TWO, [frame(3)])]
    assert connected.hear(fo.JobRefused(TWO, C, "unknown-job", "")) == [], "a submit is not refused like that"


def test_after_a_loss_an_old_leader_gets_everything_again_in_its_order(connected: Script) -> None:
    connected.hear(submit(1), submit(2), submit(3), fo.Receipts(ONE, [A]))
    connected.hear(fo.Disconnected(ONE, "gone"))
    connected.wait_until(fo.Dial, RECONNECT_FIRST_S)
    conn = connected.meet_silent_ones(TWO)
    connected.hear(fo.Connected(conn))
    do = connected.wait_until(fo.SendFrames, 2 * WELCOME_WITHIN_S)
    assert fo.SendFrames(conn, [frame(1), frame(2), frame(3)]) in do


def test_confirms_that_may_have_been_lost_are_said_again_over_every_next_connection(connected: Script) -> None:
    connected.hear(submit(1), fo.ResultReceived(ONE, A, b"done"))
    connected.hear(fo.Disconnected(ONE, "gone"))
    connected.wait_until(fo.Dial, 60)
    assert fo.SendConfirms(TWO, [A]) in connected.connect(TWO)
    connected.hear(fo.Disconnected(TWO, "gone"))
    connected.wait_until(fo.Dial, 60)
    assert fo.SendConfirms(ConnId(3), [A]) in connected.connect(ConnId(3))


def test_an_id_that_is_under_way_again_is_not_confirmed_for_what_it_was(connected: Script) -> None:
    connected.hear(submit(1), fo.ResultReceived(ONE, A, b"failed"))
    connected.hear(submit(1))
    connected.hear(fo.Disconnected(ONE, "gone"))
    connected.wait_until(fo.Dial, 60)
    assert connected.connect(TWO) == [fo.Ready(HERE, TWO, old=False), fo.SendClaims(TWO, [A]), fo.SubmitGate(True)]


def test_a_second_welcome_changes_nothing(connected: Script) -> None:
    assert connected.hear(fo.Welcomed(ONE)) == []


def test_the_first_heartbeat_has_its_time(connected: Script) -> None:
    start = connected.now
    assert connected.wait_until(fo.SendClientHeartbeat, SILENCE_MAX_S) == [fo.SendClientHeartbeat(ONE)]
    assert connected.now == pytest.approx(start + HEARTBEAT_S)


@pytest.mark.spec("K6")
def test_reconnection_backs_off_and_a_good_connection_starts_over(script: Script) -> None:
    delays = []
    for number in range(1, 12):
        do = script.hear(fo.Disconnected(ConnId(number), "nobody listens"))
        assert isinstance(do[0], fo.Away)
        delays.append(do[0].retry_in_s)
        script.wait_until(fo.Dial, 2 * RECONNECT_MAX_S)
    assert delays[:4] == [RECONNECT_FIRST_S, 2 * RECONNECT_FIRST_S, 4 * RECONNECT_FIRST_S, 8 * RECONNECT_FIRST_S]
    assert delays[-1] == RECONNECT_MAX_S
    script.connect(ConnId(12))
    assert script.hear(fo.Disconnected(ConnId(12), "gone"))[0] == fo.Away(HERE, "gone", RECONNECT_FIRST_S)


@pytest.mark.spec("K6")
@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.8), (0.999999, 1.2)])
def test_backoff_has_a_jitter_of_a_fifth(chance: float, share: float) -> None:
    script = Script(chance)
    away = script.hear(fo.Disconnected(ONE, "gone"))[0]
    assert isinstance(away, fo.Away)
    assert away.retry_in_s == pytest.approx(RECONNECT_FIRST_S * share, rel=1e-3)


def test_a_connection_that_ends_before_its_welcome_counts_as_a_failure(script: Script) -> None:
    script.hear(fo.Connected(ONE))
    assert script.hear(fo.Disconnected(ONE, "it hung up")) == [fo.Away(HERE, "it hung up", RECONNECT_FIRST_S)]
    script.wait_until(fo.Dial, 1)
    script.hear(fo.Connected(TWO))
    assert script.hear(fo.Disconnected(TWO, "it hung up")) == [fo.Away(HERE, "it hung up", 2 * RECONNECT_FIRST_S)]


def test_a_leader_that_never_says_welcome_gets_nothing_but_jobs(script: Script) -> None:
    script.hear(submit(1))
    assert script.connect_old() == [fo.Ready(HERE, ONE, old=True), fo.SendFrames(ONE, [frame(1)]), fo.SubmitGate(True)]
    result = fo.ResultReceived(ONE, A, b"done")
    assert script.hear(result) == [fo.Deliver([result])]
    assert script.machine.wake_at() is None, "no heartbeats, and no deadline for its silence"


def test_an_old_leader_cannot_be_asked_told_to_cancel_or_claimed_from(script: Script) -> None:
    script.connect_old()
    ask = fo.Ask(b"q", b"question")
    assert script.hear(ask) == [fo.NoAnswer(b"q", "not-supported", "the leader is an old one and answers no questions")]
    script.hear(submit(1))
    (given_up,) = script.hear(fo.Cancel([A]))
    assert isinstance(given_up, fo.GiveUp)
    assert (given_up.job, given_up.code) == (A, "cancelled")
    assert script.hear(fo.ResultReceived(ONE, A, b"done all the same")) == []
    (given_up,) = script.hear(fo.ClaimJob(B))
    assert isinstance(given_up, fo.GiveUp)
    assert (given_up.job, given_up.code) == (B, "not-supported")


@pytest.mark.spec("O6")
def test_who_listens_and_says_nothing_is_sent_no_job_unless_the_user_says_that_it_is_old() -> None:
    script = Script(old_leader=False)
    script.hear(submit(1))
    conn = ONE
    for _ in range(3):
        script.hear(fo.Connected(conn))
        do = script.wait_until(fo.HangUp, WELCOME_AGAIN_WITHIN_S)
        assert fo.HangUp(conn, SAYS_NOTHING) in do
        assert not any(isinstance(effect, fo.SendFrames | fo.Ready) for effect in do)
        script.hear(fo.Disconnected(conn, "we left"))
        (dial,) = [effect for effect in script.wait_until(fo.Dial, 60) if isinstance(effect, fo.Dial)]
        conn = dial.conn
    do = script.connect(conn)
    assert any(isinstance(effect, fo.SendFrames) for effect in do), "one of ours says welcome, and gets it"


@pytest.mark.spec("O1")
def test_a_silent_leader_that_proved_who_it_is_is_never_taken_for_an_old_one() -> None:
    script = Script(old_leader=True)
    script.hear(submit(1), fo.Connected(ONE, secured=True))
    do = script.wait_until(fo.HangUp, WELCOME_AGAIN_WITHIN_S)
    assert fo.HangUp(ONE, SAYS_NOTHING) in do
    assert not any(isinstance(effect, fo.SendFrames | fo.Ready) for effect in do)


@pytest.mark.spec("O1")
def test_a_leader_that_lets_no_one_in_ends_the_wait_and_is_dialled_again_after_a_pause() -> None:
    script = Script()
    script.hear(fo.Connected(ONE, secured=True))
    refused, away = script.hear(fo.HelloRefused(ONE, "denied", "the key is not valid here"))
    assert refused == fo.AllRefused("denied", "the key is not valid here")
    assert isinstance(away, fo.Away)
    assert away.retry_in_s > 0
    assert script.hear(fo.Disconnected(ONE, "it ended")) == []
    script.hear(fo.HelloRefused(ONE, "denied", "again"))


@pytest.mark.spec("O1", "K6")
def test_one_of_two_leaders_may_refuse_while_the_other_serves() -> None:
    machine = Failover(lambda: 0.5, leaders=[LeaderNo(1), LeaderNo(2)])
    assert {type(effect) for effect in machine.tick(0.0).do} == {fo.Dial}
    machine.handle([fo.Connected(ONE), fo.Connected(TWO)], 0.0)
    do = machine.handle([fo.HelloRefused(ONE, "denied", "no")], 0.0).do
    assert not any(isinstance(effect, fo.AllRefused) for effect in do)
    machine.check()
    do = machine.handle([fo.Welcomed(TWO), fo.HelloRefused(TWO, "denied", "no longer")], 1.0).do
    assert fo.AllRefused("denied", "no longer") in do
    machine.check()


@pytest.mark.spec("O1", "K6")
def test_a_leader_that_served_since_does_not_count_as_one_that_refuses() -> None:
    machine = Failover(lambda: 0.5, leaders=[LeaderNo(1), LeaderNo(2)])
    machine.tick(0.0)
    machine.handle([fo.Connected(ONE), fo.Connected(TWO), fo.HelloRefused(ONE, "denied", "no")], 0.0)
    (again,) = [effect for effect in machine.tick(1.0).do if isinstance(effect, fo.Dial)]
    machine.handle([fo.Connected(again.conn), fo.Welcomed(again.conn)], 1.0)
    do = machine.handle([fo.HelloRefused(TWO, "denied", "no")], 1.0).do
    assert not any(isinstance(effect, fo.AllRefused) for effect in do)


@pytest.mark.spec("O6")
def test_where_an_own_leader_was_a_silent_one_never_gets_a_job() -> None:
    script = Script(old_leader=False)
    script.connect()
    script.hear(fo.Disconnected(ONE, "it died"))
    script.wait_until(fo.Dial, 60)
    conn = script.meet_silent_ones(ConnId(2))
    script.hear(fo.Connected(conn), submit(1))
    assert fo.HangUp(conn, SAYS_NOTHING) in script.wait_until(fo.HangUp, WELCOME_AGAIN_WITHIN_S)


def test_a_silent_leader_that_brought_a_result_before_is_believed_from_then_on() -> None:
    script = Script(old_leader=False)
    script.hear(fo.Connected(ONE))
    script.hear(fo.ResultReceived(ONE, A, b"of an earlier life"))
    script.hear(fo.Disconnected(ONE, "it went"))
    script.wait_until(fo.Dial, 60)
    script.connect_old(ConnId(2))


def test_a_late_welcome_makes_an_old_leader_an_own_one(script: Script) -> None:
    script.connect_old()
    assert script.hear(fo.Welcomed(ONE)) == [fo.Ready(HERE, ONE, old=False)]
    assert script.hear(submit(1), fo.ResultReceived(ONE, A, b""))[-1] == fo.SendConfirms(ONE, [A])


def test_a_silent_leader_is_left_and_dialled_again(connected: Script) -> None:
    connected.hear(submit(1))
    do = connected.wait_until(fo.HangUp, SILENCE_MAX_S)
    why = f"the leader was silent for {SILENCE_MAX_S:.0f} s"
    assert do == [fo.HangUp(ONE, why), fo.Away(HERE, why, RECONNECT_FIRST_S), fo.SubmitGate(False)]
    assert connected.hear(fo.Disconnected(ONE, "aborted")) == [], "we know"
    assert connected.hear(fo.ResultReceived(ONE, A, b"too late")) == [], "the next connection may bring it again"
    connected.wait_until(fo.Dial, 1)
    assert fo.SendClaims(TWO, [A]) in connected.connect(TWO)


def test_an_embedded_leader_has_all_the_time_it_needs_and_need_show_no_sign_of_life() -> None:
    script = Script(embedded=True)
    script.hear(fo.Connected(ONE))
    assert script.machine.wake_at() is None
    script.now += 10 * WELCOME_WITHIN_S
    assert script.tick() == [], "it is not taken for an old one"
    assert script.hear(fo.Welcomed(ONE)) == [fo.Ready(HERE, ONE, old=False), fo.SubmitGate(True)]
    assert script.hear(submit(1)) == [fo.SendFrames(ONE, [frame(1)])]
    assert script.machine.wake_at() is None
    script.now += 10 * SILENCE_MAX_S
    assert script.tick() == []
    assert script.hear(fo.JobRefused(ONE, A, "full", "")) == [fo.Waiting(HERE, "full", ""), fo.SubmitGate(False)]
    assert script.wait_until(fo.SendFrames, 1) == [fo.SendFrames(ONE, [frame(1)])]


def test_any_word_of_the_leader_is_a_sign_of_life(connected: Script) -> None:
    connected.hear(submit(1), submit(2))
    signs: list[ClientEvent] = [
        fo.HeartbeatReceived(ONE),
        fo.Receipts(ONE, [A]),
        fo.ResultReceived(ONE, A, b""),
        fo.JobRefused(ONE, B, "bad-name", "no"),
        fo.QuestionAnswered(ONE, b"q", False, b""),
    ]
    for sign in signs:
        until = connected.now + SILENCE_MAX_S - 0.5
        while (wake_at := connected.machine.wake_at()) is not None and wake_at < until:
            connected.now = wake_at
            assert connected.tick() == [fo.SendClientHeartbeat(ONE)]
        connected.now = until
        connected.hear(sign)


def test_a_final_refusal_ends_the_job(connected: Script) -> None:
    connected.hear(submit(1))
    assert connected.hear(fo.JobRefused(ONE, A, "conflict", "another request")) == [
        fo.GiveUp(A, "conflict", "another request")
    ]
    assert connected.machine.unfinished == 0
    assert connected.hear(fo.JobRefused(ONE, A, "conflict", "another request")) == []


@pytest.mark.spec("L9")
def test_a_full_leader_is_offered_the_job_again_later(connected: Script) -> None:
    connected.hear(submit(1))
    assert connected.hear(fo.JobRefused(ONE, A, "full", "no room")) == [
        fo.Waiting(HERE, "full", "no room"),
        fo.SubmitGate(False),
    ]
    start = connected.now
    assert connected.wait_until(fo.SendFrames, FULL_RETRY_FIRST_S) == [fo.SendFrames(ONE, [frame(1)])]
    assert connected.now == pytest.approx(start + FULL_RETRY_FIRST_S)
    assert connected.hear(fo.Receipts(ONE, [A])) == [
        fo.Accepted([A]),
        fo.WaitingOver(HERE, taken=True),
        fo.SubmitGate(True),
    ]


def test_a_full_leader_that_asks_for_a_jobs_files_has_room_for_others_meanwhile(connected: Script) -> None:
    connected.hear(submit(1), submit(2))
    connected.hear(fo.JobRefused(ONE, A, "full", ""), fo.JobRefused(ONE, B, "full", ""))
    assert connected.wait_until(fo.SendFrames, 1) == [fo.SendFrames(ONE, [frame(1)])]
    assert connected.hear(fo.FilesWanted(ONE, A)) == [fo.SendFrames(ONE, [frame(2)])]
    assert connected.hear(fo.Receipts(ONE, [B])) == [
        fo.Accepted([B]),
        fo.WaitingOver(HERE, taken=True),
        fo.SubmitGate(True),
    ]
    assert connected.hear(fo.Receipts(ONE, [A])) == [fo.Accepted([A])], "it was under way all the time"


def test_a_job_whose_files_cannot_get_there_is_given_up_like_one_that_was_refused(connected: Script) -> None:
    connected.hear(submit(1))
    assert connected.hear(fo.FilesWanted(ONE, A)) == []
    assert connected.hear(fo.JobRefused(ONE, A, "bad-request", "changed")) == [fo.GiveUp(A, "bad-request", "changed")]
    assert connected.hear(fo.FilesWanted(ONE, A), fo.FilesWanted(TWO, B)) == [], "what nobody knows hurts nobody"


def test_the_user_is_told_once_that_a_leader_takes_no_jobs_and_again_for_another_reason(connected: Script) -> None:
    connected.hear(submit(1), submit(2))
    said = connected.hear(fo.JobRefused(ONE, A, "disk-full", "no room"), fo.JobRefused(ONE, B, "disk-full", "no room"))
    assert said == [fo.Waiting(HERE, "disk-full", "no room"), fo.SubmitGate(False)]
    for _ in range(3):
        (probe,) = connected.wait_until(fo.SendFrames, FULL_RETRY_MAX_S)
        assert isinstance(probe, fo.SendFrames)
        refused = A if list(probe.frames) == [frame(1)] else B
        assert connected.hear(fo.JobRefused(ONE, refused, "disk-full", "no room")) == []
    connected.wait_until(fo.SendFrames, FULL_RETRY_MAX_S)
    assert connected.hear(fo.JobRefused(ONE, B, "stopping", "bye")) == [fo.Waiting(HERE, "stopping", "bye")]


def test_a_leader_that_was_not_asked_again_is_not_said_to_take_jobs(connected: Script) -> None:
    connected.hear(submit(1))
    connected.hear(fo.JobRefused(ONE, A, "full", "no room"))
    connected.hear(fo.Cancel([A]))
    assert connected.wait_until(fo.WaitingOver, FULL_RETRY_FIRST_S) == [
        fo.WaitingOver(HERE, taken=False),
        fo.SubmitGate(True),
    ]
    connected.hear(submit(2))
    said = connected.hear(fo.JobRefused(ONE, B, "full", "no room"))
    assert said == [fo.Waiting(HERE, "full", "no room"), fo.SubmitGate(False)], "that is news again"


def test_a_leader_that_stays_full_is_asked_less_and_less_often(connected: Script) -> None:
    connected.hear(submit(1))
    pauses = []
    for _ in range(9):
        connected.hear(fo.JobRefused(ONE, A, "full", ""), fo.HeartbeatReceived(ONE))
        start = connected.now
        connected.wait_until(fo.SendFrames, FULL_RETRY_MAX_S)
        pauses.append(connected.now - start)
    assert pauses[:3] == pytest.approx([FULL_RETRY_FIRST_S, 2 * FULL_RETRY_FIRST_S, 4 * FULL_RETRY_FIRST_S])
    assert pauses[-1] == pytest.approx(FULL_RETRY_MAX_S)


def test_a_full_leader_is_tried_with_one_job_then_twice_as_many_each_time(connected: Script) -> None:
    connected.hear(*(submit(number) for number in range(1, 9)))
    refused = [fo.JobRefused(ONE, job(number), "full", "") for number in range(1, 9)]
    assert connected.hear(*refused) == [fo.Waiting(HERE, "full", ""), fo.SubmitGate(False)]
    assert connected.hear(submit(9)) == [], "newcomers queue up behind"
    assert connected.wait_until(fo.SendFrames, 1) == [fo.SendFrames(ONE, [frame(1)])]
    assert connected.hear(fo.Receipts(ONE, [job(1)])) == [
        fo.Accepted([job(1)]),
        fo.SendFrames(ONE, [frame(2), frame(3)]),
    ]
    assert connected.hear(fo.Receipts(ONE, [job(2)])) == [fo.Accepted([job(2)])]
    assert connected.hear(fo.Receipts(ONE, [job(3)]))[-1] == fo.SendFrames(
        ONE, [frame(4), frame(5), frame(6), frame(7)]
    )
    # It is full again: from the beginning.
    assert connected.hear(fo.JobRefused(ONE, job(7), "full", "")) == []
    assert connected.hear(fo.Receipts(ONE, [job(4), job(5), job(6)])) == [fo.Accepted([job(4), job(5), job(6)])]
    assert connected.wait_until(fo.SendFrames, 1) == [fo.SendFrames(ONE, [frame(8)])]
    connected.hear(fo.Receipts(ONE, [job(8)]))
    assert connected.hear(fo.Receipts(ONE, [job(9), job(7)])) == [
        fo.Accepted([job(9), job(7)]),
        fo.WaitingOver(HERE, taken=True),
        fo.SubmitGate(True),
    ]


def test_a_leader_that_was_full_and_took_everything_is_trusted_anew(connected: Script) -> None:
    for _ in range(3):
        connected.hear(submit(1))
        connected.hear(fo.JobRefused(ONE, A, "full", ""))
        start = connected.now
        connected.wait_until(fo.SendFrames, 1)
        assert connected.now - start == pytest.approx(FULL_RETRY_FIRST_S)
        assert fo.SubmitGate(True) in connected.hear(fo.ResultReceived(ONE, A, b""))


def test_a_refusal_of_what_is_not_with_that_leader_is_ignored(connected: Script) -> None:
    connected.hear(submit(1))
    connected.hear(fo.JobRefused(ONE, A, "full", ""))
    assert connected.hear(fo.JobRefused(ONE, A, "bad-name", "said twice")) == []
    assert connected.machine.unfinished == 1


def test_a_leader_that_stops_is_no_reason_to_give_up(connected: Script) -> None:
    connected.hear(submit(1))
    assert connected.hear(fo.JobRefused(ONE, A, "stopping", "bye")) == [
        fo.Waiting(HERE, "stopping", "bye"),
        fo.SubmitGate(False),
    ]
    connected.hear(fo.Disconnected(ONE, "gone"))
    connected.wait_until(fo.Dial, 1)
    assert connected.connect(TWO) == [
        fo.Ready(HERE, TWO, old=False),
        fo.SendFrames(TWO, [frame(1)]),
        fo.SubmitGate(True),
    ]


def test_a_probe_that_is_refused_for_good_lets_the_next_one_try(connected: Script) -> None:
    connected.hear(submit(1), submit(2))
    connected.hear(fo.JobRefused(ONE, A, "full", ""), fo.JobRefused(ONE, B, "full", ""))
    connected.wait_until(fo.SendFrames, 1)
    assert connected.hear(fo.JobRefused(ONE, A, "bad-name", "no")) == [
        fo.GiveUp(A, "bad-name", "no"),
        fo.SendFrames(ONE, [frame(2)]),
    ]
    assert connected.hear(fo.JobRefused(ONE, B, "bad-name", "no")) == [
        fo.GiveUp(B, "bad-name", "no"),
        fo.WaitingOver(HERE, taken=False),
        fo.SubmitGate(True),
    ]


def test_a_leader_that_does_not_read_is_not_written_to(connected: Script) -> None:
    assert connected.hear(fo.LeaderBlocked(ONE, True)) == [fo.SubmitGate(False)]
    assert connected.hear(submit(1), submit(2)) == []
    assert connected.hear(fo.LeaderBlocked(ONE, False)) == [
        fo.SendFrames(ONE, [frame(1), frame(2)]),
        fo.SubmitGate(True),
    ]


def test_a_job_that_was_not_sent_is_cancelled_here(script: Script) -> None:
    assert script.hear(submit(1), submit(2), fo.Cancel([A])) == [
        fo.GiveUp(A, "cancelled", "it was cancelled before it was sent")
    ]
    said = script.connect()
    assert said == [
        fo.Ready(HERE, ONE, old=False),
        fo.SendCancels(ONE, [A]),  # a leader may have it from an earlier life of this client
        fo.SendFrames(ONE, [frame(2)]),
        fo.SubmitGate(True),
    ]


@pytest.mark.spec("L10")
def test_a_job_that_was_sent_is_cancelled_by_the_leader(connected: Script) -> None:
    assert connected.hear(submit(1), submit(2), fo.Cancel([A, B, C])) == [
        fo.SendFrames(ONE, [frame(1), frame(2)]),
        fo.SendCancels(ONE, [A, B]),
    ]
    assert connected.hear(fo.Cancel([A])) == [], "once is enough"
    result = fo.ResultReceived(ONE, A, b"cancelled")
    assert connected.hear(result) == [fo.Deliver([result]), fo.SendConfirms(ONE, [A])]


def test_a_cancelled_job_is_not_sent_again_after_a_loss_but_the_next_connection_hears_of_it(connected: Script) -> None:
    connected.hear(submit(1), submit(2), fo.Cancel([A]))
    assert connected.hear(fo.Disconnected(ONE, "gone"))[0] == fo.GiveUp(
        A, "cancelled", "it was cancelled, and its connection was lost"
    )
    connected.wait_until(fo.Dial, 1)
    assert connected.connect(TWO) == [
        fo.Ready(HERE, TWO, old=False),
        fo.SendCancels(TWO, [A]),
        fo.SendClaims(TWO, [B]),
        fo.SubmitGate(True),
    ]


@pytest.mark.parametrize("how", ["resent", "claimed"])
def test_a_job_that_a_leader_has_is_called_off_there_though_this_connection_never_carried_it(how: str) -> None:
    script = Script()
    script.connect()
    if how == "resent":
        script.hear(submit(1), fo.Receipts(ONE, [A]))
    script.hear(fo.Disconnected(ONE, "gone"))
    if how == "claimed":
        script.hear(fo.ClaimJob(A))
    script.hear(fo.Cancel([A]))
    script.wait_until(fo.Dial, 60)
    assert fo.SendCancels(TWO, [A]) in script.connect(TWO)


def test_a_cancel_whose_connection_was_lost_is_said_over_every_next_one(connected: Script) -> None:
    """Signs of life do not wait for the leader's disk: however long it lived, it may not have kept the cancel."""
    connected.hear(submit(1), fo.Receipts(ONE, [A]), fo.Cancel([A]))
    for conn in (TWO, ConnId(3)):
        connected.hear(fo.Disconnected(ConnId(conn - 1), "gone"))
        connected.wait_until(fo.Dial, 60)
        assert fo.SendCancels(conn, [A]) in connected.connect(conn)
        connected.now += 2 * SILENCE_MAX_S
        connected.hear(fo.HeartbeatReceived(conn))


@pytest.mark.parametrize("again", [submit(1), fo.ClaimJob(A)])
def test_a_job_that_is_wanted_again_is_cancelled_no_more(connected: Script, again: fo.ClientEvent) -> None:
    connected.hear(submit(1), fo.Receipts(ONE, [A]), fo.Cancel([A]), fo.Disconnected(ONE, "gone"))
    connected.hear(again)
    connected.wait_until(fo.Dial, 60)
    assert not any(isinstance(effect, fo.SendCancels) for effect in connected.connect(TWO))


def test_a_job_cancelled_before_a_late_welcome_is_called_off_after_it(script: Script) -> None:
    script.connect_old()
    script.hear(submit(1))
    assert [type(effect) for effect in script.hear(fo.Cancel([A]))] == [fo.GiveUp]
    assert fo.SendCancels(ONE, [A]) in script.hear(fo.Welcomed(ONE))


def test_a_welcome_that_comes_late_finds_the_cancels_and_confirms_still_to_be_told(connected: Script) -> None:
    connected.hear(submit(1), submit(2), fo.Receipts(ONE, [A]), fo.ResultReceived(ONE, B, b"done"), fo.Cancel([A]))
    connected.hear(fo.Disconnected(ONE, "gone"))
    connected.wait_until(fo.Dial, 60)
    conn = connected.meet_silent_ones(TWO)
    connected.connect_old(conn)
    said = connected.hear(fo.Welcomed(conn))
    assert fo.SendCancels(conn, [A]) in said
    assert fo.SendConfirms(conn, [B]) in said


def test_a_cancelled_job_that_meets_a_full_leader_is_given_up(connected: Script) -> None:
    connected.hear(submit(1), fo.Cancel([A]))
    assert connected.hear(fo.JobRefused(ONE, A, "full", "")) == [
        fo.GiveUp(A, "cancelled", "it was cancelled before the leader took it")
    ]


def test_a_claim_waits_for_someone_elses_job(connected: Script) -> None:
    assert connected.hear(fo.ClaimJob(A)) == [fo.SendClaims(ONE, [A])]
    connected.hear(fo.Disconnected(ONE, "gone"))
    connected.wait_until(fo.Dial, 1)
    assert fo.SendClaims(TWO, [A]) in connected.connect(TWO)
    assert connected.hear(fo.JobRefused(TWO, A, "unknown-job", "never heard")) == [
        fo.GiveUp(A, "unknown-job", "never heard")
    ]


def test_a_claim_that_nobody_waits_for_is_forgotten(connected: Script) -> None:
    connected.hear(fo.ClaimJob(A))
    assert connected.hear(fo.Forget(A)) == []
    assert connected.machine.unfinished == 0


def test_a_question_is_asked_again_if_its_connection_is_lost_before_the_answer(connected: Script) -> None:
    assert connected.hear(fo.Ask(b"q", b"question")) == [fo.SendFrames(ONE, [b"question"])]
    connected.hear(fo.Disconnected(ONE, "gone"))
    connected.wait_until(fo.Dial, 1)
    assert fo.SendFrames(TWO, [b"question"]) in connected.connect(TWO)
    assert connected.hear(fo.QuestionAnswered(TWO, b"q", False, b"yes")) == [fo.AnswerQuestion(b"q", False, b"yes")]
    assert connected.hear(fo.QuestionAnswered(TWO, b"q", False, b"yes")) == []


def test_a_question_that_nobody_waits_for_is_not_asked(script: Script) -> None:
    assert script.hear(fo.Ask(b"q", b"question"), fo.Forget(b"q")) == []
    assert script.connect() == [fo.Ready(HERE, ONE, old=False), fo.SubmitGate(True)]


def test_a_connection_that_was_lost_says_nothing_any_more(connected: Script) -> None:
    connected.hear(submit(1))
    connected.hear(fo.Disconnected(ONE, "gone"))
    for event in (
        fo.Receipts(ONE, [A]),
        fo.JobRefused(ONE, A, "bad-name", "no"),
        fo.Welcomed(ONE),
        fo.LeaderBlocked(ONE, True),
        fo.Disconnected(ONE, "gone"),
    ):
        assert connected.hear(event) == []


class AnyLife(RuleBasedStateMachine):
    """Whatever a leader, a network and a user do: invariants hold, and no job ends twice or is forgotten."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.machine = Failover(lambda: 0.5, old_leader=True)
        self.wanted: set[JobId] = set()
        self.at_leader: set[JobId] = set()
        self.asked_for: set[JobId] = set()
        """Those of them that were claimed: only a claim is answered with "unknown-job"."""
        self.count = 0
        self.dialling: ConnId | None = None
        self.conn: ConnId | None = None
        self.waiting = ""
        self.tick(0.0)

    def step(self, do: list[ClientDo]) -> None:
        for effect in do:
            match effect:
                case fo.Dial(conn):
                    assert self.dialling is None
                    assert self.conn is None
                    self.dialling = conn
                case fo.HangUp(conn):
                    assert conn == self.conn
                    self.conn = None
                    self.at_leader.clear()
                case fo.SendFrames(conn, frames):
                    assert conn == self.conn
                    jobs = {job(int(data.split()[1])) for data in frames}
                    assert len(jobs) == len(frames)
                    assert not jobs & self.at_leader, "never twice over one connection"
                    self.at_leader |= jobs
                    self.asked_for -= jobs
                case fo.SendClaims(conn, claimed):
                    assert conn == self.conn
                    assert not self.at_leader.intersection(claimed), "never twice over one connection"
                    self.at_leader.update(claimed)
                    self.asked_for.update(claimed)
                case fo.Deliver(results):
                    for result in results:
                        self.wanted.remove(result.job)
                case fo.GiveUp(gone):
                    self.wanted.remove(gone)
                    self.at_leader.discard(gone)
                case fo.Waiting(_, code):
                    assert code != self.waiting, "said once"
                    self.waiting = code
                case fo.WaitingOver():
                    assert self.waiting
                    self.waiting = ""
                case fo.Away():
                    self.waiting = ""
                case fo.SubmitGate(is_open):
                    assert not (is_open and self.waiting)
                case _:
                    pass

    def hear(self, *events: ClientEvent) -> None:
        self.step(list(self.machine.handle(events, self.now).do))

    @rule(seconds=st.sampled_from([0.05, 0.5, 3.0, 31.0]))
    def tick(self, seconds: float) -> None:
        until = self.now + seconds
        while (wake_at := self.machine.wake_at()) is not None and wake_at <= until:
            self.now = max(self.now, wake_at)
            self.step(list(self.machine.tick(self.now).do))
        self.now = until

    @rule(many=st.integers(1, 5))
    def submit(self, many: int) -> None:
        events = [submit(self.count + number) for number in range(many)]
        self.count += many
        self.wanted |= {event.job for event in events}
        self.hear(*events)

    @precondition(lambda self: self.dialling is not None)
    @rule(own=st.booleans(), stands=st.booleans())
    def dialled(self, own: bool, stands: bool) -> None:
        conn, self.dialling = self.dialling, None
        assert conn is not None
        if not stands:
            self.hear(fo.Disconnected(conn, "refused"))
            return
        self.conn = conn
        self.hear(fo.Connected(conn))
        if own:
            self.hear(fo.Welcomed(conn))

    @precondition(lambda self: self.conn is not None)
    @rule()
    def lose(self) -> None:
        conn, self.conn = self.conn, None
        assert conn is not None
        self.at_leader.clear()
        self.hear(fo.Disconnected(conn, "gone"))

    @precondition(lambda self: self.conn is not None and self.at_leader)
    @rule(
        data=st.data(),
        answer=st.sampled_from(["receipt", "wanted", "result", "full", "disk-full", "bad-name", "unknown-job"]),
    )
    def answer(self, data: st.DataObject, answer: str) -> None:
        assert self.conn is not None
        chosen = data.draw(st.sampled_from(sorted(self.at_leader)))
        if answer == "receipt":
            self.hear(fo.Receipts(self.conn, [chosen]))
            return
        if answer == "wanted":
            self.hear(fo.FilesWanted(self.conn, chosen))
            return
        self.at_leader.remove(chosen)
        if answer == "unknown-job" and chosen not in self.asked_for:
            answer = "bad-name"
        if answer == "result":
            self.hear(fo.ResultReceived(self.conn, chosen, b""))
        else:
            self.hear(fo.JobRefused(self.conn, chosen, answer, ""))

    @precondition(lambda self: self.conn is not None)
    @rule(on=st.booleans())
    def block(self, on: bool) -> None:
        assert self.conn is not None
        self.hear(fo.LeaderBlocked(self.conn, on))

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.hear(fo.Cancel([data.draw(st.sampled_from(sorted(self.wanted)))]))

    @invariant()
    def holds(self) -> None:
        self.machine.check()
        assert self.machine.unfinished == len(self.wanted)

    def teardown(self) -> None:
        """Give it a good leader for long enough, and everything ends."""
        if not hasattr(self, "machine"):
            return
        for _ in range(200):
            if not self.wanted:
                return
            if self.dialling is not None:
                self.dialled(own=True, stands=True)
            elif self.conn is not None:
                self.hear(fo.LeaderBlocked(self.conn, False))
                for chosen in sorted(self.at_leader):
                    self.at_leader.discard(chosen)
                    self.hear(fo.ResultReceived(self.conn, chosen, b""))
            self.tick(6.0)
        raise AssertionError(f"{len(self.wanted)} jobs never ended")


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
