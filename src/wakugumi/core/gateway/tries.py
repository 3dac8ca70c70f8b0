"""Does a job still wait in the right place? Tries at groups, and the polls that tell how the groups are.

    the group answers no more polls, or is deserted            jobs that wait there are sent to another group
    no progress for `try_s` and the job's own time             the job is late
    no further byte of an answer for `silence_s`               the answer is late

The log has one line when a group rests or is gone, and one when it is back, however many jobs were affected.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from wakugumi.core.flows import Deadline, Flow, Timer
from wakugumi.core.gateway.events import CancelAt, CloseTry, PollGroup, SinceMoved
from wakugumi.core.gateway.state import GatewayState
from wakugumi.core.step import DEBUG, ERROR, WARNING
from wakugumi.errors import Lost, PeerError

_LOOK_S: Final = 0.05
"""Shortest time until the next look: what rounding leaves of a patience would ring at once, again and again."""


class Try:
    """One job at one group, from sending it to the end of its answer."""

    def __init__(self, number: int, group: str, flow: Flow[Any], since: float, patience_s: float) -> None:
        self.number = number
        self.group = group
        self.flow = flow
        self.since = since
        self.patience_s = patience_s
        """Time without progress that is allowed."""
        self.is_there = True
        """The job may take a slot there, or wait for one."""
        self.is_open = True
        self.is_received = False
        """The answer is whole, and is being stored."""
        self.timer: Timer | None = None


class Tries:
    """All tries of one gateway, and its polls."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._flows = state.flows
        self._groups = state.groups
        self.open_tries: dict[int, Try] = {}
        self._count = 0
        self._failures = dict.fromkeys(state.groups.by_name, 0)
        """Failed tries by group since the last success."""

    def start(self) -> None:
        for name in self._groups.by_name:
            self._state.start(partial(self._poll, name), f"poll {name}")

    # Tries.

    def open(self, group: str, job_s: float) -> Try:
        """For the flow that runs now. It gets Lost, with the reason `left` if the group is deserted, `slow` if it is
        gone, and `late` if the job or its answer takes too long."""
        assert self._flows.current is not None
        self._count += 1
        patience_s = job_s + self._state.bounds.try_s
        one = Try(self._count, group, self._flows.current, self._flows.now, patience_s)
        self.open_tries[one.number] = one
        self._groups.sent(group)
        self._watch(one, patience_s)
        return one

    def head_came(self, number: int) -> None:
        """The group has begun to answer."""
        if (one := self.open_tries.get(number)) is not None and one.is_there:
            one.is_there = False
            self._groups.ended(one.group, is_over=True)
            one.patience_s = self._state.bounds.silence_s
            self._watch(one, one.patience_s)

    def received(self, one: Try) -> None:
        """The answer is whole: whatever becomes of the group, the try is not interrupted any more."""
        one.is_received = True
        if one.timer is not None:
            one.timer.cancel()

    def was_refused(self, one: Try) -> None:
        """The group took no connection: no job is there."""
        if one.is_there:
            one.is_there = False
            self._groups.ended(one.group, is_over=True)

    def close(self, one: Try) -> None:
        one.is_open = False
        if one.timer is not None:
            one.timer.cancel()
        del self.open_tries[one.number]
        if one.is_there:
            self._groups.ended(one.group, is_over=False)
        self._flows.emit(CloseTry(one.number))

    def _watch(self, one: Try, seconds: float) -> None:
        if one.timer is not None:
            one.timer.cancel()
        one.timer = self._flows.call_at(self._flows.now + seconds, lambda: self._begin_look(one))

    def _begin_look(self, one: Try) -> None:
        self._state.start(partial(self._look, one), "look whether a try moves")

    async def _look(self, one: Try) -> None:
        """The time of a try has passed, unless bytes have moved meanwhile."""
        idle_s = await SinceMoved(one.number)
        if one.is_received:
            return
        if one.is_open and idle_s < one.patience_s:
            self._watch(one, max(one.patience_s - idle_s, _LOOK_S))
        elif one.is_open:
            one.flow.interrupt(Lost(f"{self._url(one.group)} has not answered in time", "late"))

    # Groups.

    def failed(self, name: str, why: object) -> None:
        if self._failures[name] == 0 and not self._groups.is_gone(name):
            self._state.log(WARNING, f"group rests group={name}: {why}")
        self._failures[name] += 1
        self._groups.failed(name, self._flows.now, self._state.chance())

    def answered(self, name: str) -> None:
        if self._failures[name]:
            self._state.log(WARNING, f"group answers again group={name} failed_tries={self._failures[name]}")
            self._failures[name] = 0
        self._groups.answered(name)

    async def cancel(self, group: str, name: str) -> None:
        """Cancels the job there: best effort."""
        deadline = Deadline(self._flows, self._state.bounds.answer_s, Lost("no answer in time", "slow"))
        try:
            await CancelAt(group, name)
        except Lost:
            pass
        finally:
            deadline.close()

    async def _poll(self, name: str) -> None:
        bounds, groups = self._state.bounds, self._groups
        while True:
            began_at = self._flows.now
            why = ""
            was_gone = groups.is_gone(name)
            groups.polling(name)
            deadline = Deadline(self._flows, bounds.answer_s, Lost(f"no answer within {bounds.answer_s:g} s", "slow"))
            try:
                said = await PollGroup(name)
                groups.polled(name, said, self._flows.now)
            except (Lost, PeerError) as error:
                groups.missed(name)
                why = str(error)
                self._state.log(DEBUG, f"no answer to poll group={name}: {why}")
            except Exception as error:
                groups.missed(name)  # Any other error counts as no answer.
                why = repr(error)
                self._state.log(ERROR, f"poll failed group={name}", error)
            finally:
                deadline.close()
            if groups.is_gone(name) != was_gone:
                text = f"group back group={name}" if was_gone else f"group gone group={name}: {why}"
                self._state.log(WARNING, text)
            self._send_away(name)
            await self._flows.pause(max(0.001, began_at + bounds.poll_s - self._flows.now))

    def _send_away(self, name: str) -> None:
        """Ends the waiting at a group that is gone or deserted."""
        now = self._flows.now
        is_gone = self._groups.is_gone(name)
        for one in self.open_tries.values():
            if one.group != name or one.is_received:
                continue
            if is_gone:
                one.flow.interrupt(Lost(f"{self._url(name)} does not answer", "slow"))
            elif one.is_there and self._groups.is_deserted(name, one.since, now):
                one.flow.interrupt(Lost(f"{self._url(name)} has had no workers for long", "left"))

    def _url(self, group: str) -> str:
        return self._groups.by_name[group].url

    def check(self) -> None:
        self._groups.check()
        there = dict.fromkeys(self._groups.by_name, 0)
        for one in self.open_tries.values():
            assert one.is_open
            assert not one.flow.ended.is_kept
            there[one.group] += one.is_there
        for name, count in there.items():
            assert self._groups.ours(name) == count, f"jobs of this gateway at {name}"
