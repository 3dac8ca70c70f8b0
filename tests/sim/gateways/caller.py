"""Clients of gateways: each wants one job, by its id, and asks until it has the answer, or leaves.

One that waits sends its job again when a gateway died, was full or lost it, perhaps to another gateway. One that was
told 202 asks for the result. Some leave in the midst, some cancel, some use an id that another request has, or another
client. A prowler asks for jobs of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakugumi.core.access.identity import Identity, Role
from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.outcomes import Problem
from wakugumi.core.gateway.rows import GatewayJob
from wakugumi.core.ids import JobId, job_id_from_name
from wakugumi.errors import Lost, Refused

if TYPE_CHECKING:
    from tests.sim.gateways.gateway import GatewayProcess
    from tests.sim.gateways.world import GatewayWorld


PROWLER = Identity("eve", Role.CLIENT)


class Want:
    """One client and its job."""

    def __init__(self, world: GatewayWorld, name: str, body: bytes, sender: Identity, *, is_async: bool) -> None:
        self.world = world
        self.sender = sender
        self.client = sender.name
        self.sight = sender.sight()
        self.name = name
        self.body = body
        self.job: JobId = job_id_from_name(name)
        self.is_async = is_async
        self.is_accepted = False
        self.is_over = False
        self.call: Call | None = None

    def __repr__(self) -> str:
        return f"{self.name} {self.body!r}{' async' if self.is_async else ''} of {self.client}"

    def ask(self) -> None:
        """Some living gateway is asked, if there is one."""
        world = self.world
        if self.is_over:
            return
        living = [gateway for gateway in world.gateways if gateway.alive]
        if not living:
            self.again()
            return
        gateway = world.random.choice(living)
        self.call = Call(self, gateway, is_cut=world.is_stormy and world.faults.random() < 0.05)
        if self.is_accepted and world.random.random() < 0.5:
            self.call.number = gateway.ask(self.call, "result", self.sight)
        else:
            self.call.number = gateway.submit(self.call, is_async=self.is_async and not self.is_accepted)

    def again(self) -> None:
        self.world.clock.after(1.0 + 3.0 * self.world.random.random(), self.ask)

    def leave(self) -> None:
        """It goes, and comes back later."""
        if self.call is not None and not self.call.has_left:
            self.world.judge.excuse(self.name, "its client left")
            self.call.leave(says_so=self.world.faults.random() < 0.5)
            self.again()

    def cancel(self) -> None:
        living = [gateway for gateway in self.world.gateways if gateway.alive]
        if living:
            self.world.judge.cancels(self.name)
            call = Call(Want(self.world, self.name, self.body, self.sender, is_async=False), living[0])
            call.want.is_over = True
            call.number = living[0].ask(call, "cancel", self.sight)


class Call:
    """One request of a client."""

    def __init__(self, want: Want, gateway: GatewayProcess, *, is_cut: bool = False) -> None:
        self.want = want
        self.gateway = gateway
        self.body = want.body
        self.is_cut = is_cut
        """The connection ends before the body is whole."""
        self.has_odd_end = want.world.versions.random() < 0.1
        """The form ends in another way than usual: the size of its file is known when the body is whole."""
        self.has_left = False
        self.number = 0

    def leave(self, *, says_so: bool) -> None:
        self.has_left = True
        self.gateway.leave(self.number, says_so=says_so)

    def sent(self, state: GatewayJob | None) -> None:
        """An event came. These clients ask for none."""

    def lost(self) -> None:
        """The connection ended without an answer."""
        if not self.has_left and not self.want.is_over:
            self.want.again()

    def got(self, data: bytes) -> None:
        if not self.has_left and not self.want.is_over:
            self.want.is_over = True
            self.want.world.judge.answered(self.want, data)

    def answered(self, answer: ev.Answer) -> None:
        want, judge = self.want, self.want.world.judge
        if self.has_left or want.is_over:
            return
        if isinstance(answer, ev.JobAccepted):
            want.is_accepted = True
            judge.accepted(want)
            want.again()
        elif isinstance(answer, Problem | Refused) and _is_final(answer):
            want.is_over = True
            judge.problem(want, answer.code)
        else:
            want.again()


class Prowl(Call):
    """A question of a client that owns no job: nothing is to be had."""

    def __init__(self, want: Want, gateway: GatewayProcess, question: str) -> None:
        super().__init__(want, gateway)
        self.number = gateway.ask(self, question, PROWLER.sight())
        self._judge = want.world.judge

    def sent(self, state: GatewayJob | None) -> None:
        self._judge.prowled(self.want, f"the event {state}")

    def lost(self) -> None:
        """Its gateway died."""

    def got(self, data: bytes) -> None:
        self._judge.prowled(self.want, repr(data))

    def answered(self, answer: ev.Answer) -> None:
        if not isinstance(answer, Refused | Lost):
            self._judge.prowled(self.want, repr(answer))
        elif isinstance(answer, Refused) and answer.code in {"denied", "no-result"}:
            self._judge.prowled(self.want, f"that there is such a job: {answer}")


def _is_final(answer: Problem | Refused) -> bool:
    if isinstance(answer, Refused):
        return answer.code in {"conflict", "denied"}
    return answer.status < 500 or answer.code == "timeout"
