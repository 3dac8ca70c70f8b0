"""Was a job lost at a gateway, answered twice differently, run again without need, or anything left behind?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.sim.checker import BROKEN, LEAKED, LOST, TWICE, Broken
from tests.sim.gateways.group import GONE_S

from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.groups import NEAR
from wakugumi.core.gateway.rows import DONE, FAILED, GatewayJob
from wakugumi.core.ids import job_id_from_name

if TYPE_CHECKING:
    from tests.sim.gateways.caller import Want
    from tests.sim.gateways.gateway import GatewayProcess
    from tests.sim.gateways.group import Group
    from tests.sim.gateways.world import GatewayWorld
    from tests.sim.process import Process

POLLED_S = 10.0
"""A living gateway asks each group more often than this."""


class GatewayJudge:
    """Of one world."""

    def __init__(self, world: GatewayWorld) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()
        self._runs: Counter[str] = Counter()
        self._excuses: dict[str, list[str]] = {}
        self._sent_to: dict[str, str] = {}
        """The group of the last try, by path."""
        self._accepted: dict[str, Want] = {}
        self._answers: dict[str, bytes] = {}
        self._cancelled: set[str] = set()
        self._owners: dict[str, set[str]] = {}
        """Clients that ever had the id."""
        self._ended: set[str] = set()
        """Jobs that had an end: a failed one may be submitted anew, by a client that waits and leaves no row."""

    def broken(self, name: str, what: str, sort: str = BROKEN) -> None:
        raise Broken(job_id_from_name(name) if name else None, what, sort)

    def error(self, text: str) -> None:
        if not text.startswith("poll failed"):  # By a group that answers nonsense.
            self.broken("", f"the gateway failed: {text}")

    def power_came_back(self) -> None:
        for name, want in self._accepted.items():
            if name not in self._ended and self._world.store.rows.get(want.job) is None:
                self.broken(name, f"{name} was accepted, and lost with the power", LOST)

    def process_died(self, _process: Process) -> None:
        self.counts["gateways that died"] += 1

    def gateway_died(self, gateway: GatewayProcess, *, power: bool) -> None:
        del power
        for call in gateway.calls.values():
            self.excuse(call.want.name, "its gateway died")
        for flight in gateway.machine.flights.by_job.values():
            self.excuse(flight.row.name, "its gateway died")

    def excuse(self, name: str, why: str) -> None:
        """A run more is right."""
        self._excuses.setdefault(name, []).append(why)

    def cancels(self, name: str) -> None:
        self._cancelled.add(name)
        self.excuse(name, "it was cancelled")

    def forget(self, row: GatewayJob) -> None:
        """Power was lost before the row was safe: an answer that was given may be given anew."""
        self.excuse(row.name, "power was lost")
        self._answers.pop(row.name, None)

    def runs(self, name: str, group: Group) -> int:
        self._runs[name] += 1
        self.counts["runs"] += 1
        if self._runs[name] > 1:
            if not self._excuses.get(name) and not self._world.is_stormy:
                self.broken(name, f"{name} runs again at {group.name} without need")
            self.counts["runs again"] += 1
        return self._runs[name]

    def sent(self, gateway: GatewayProcess, group: Group, act: ev.Dispatch) -> None:
        self.counts["tries"] += 1
        world = self._world
        is_again = self._sent_to.get(act.path) == group.name  # A cut connection: the group may have the job.
        self._sent_to[act.path] = group.name
        if is_again or world.is_stormy or world.choice != NEAR:
            return
        if group.zone == gateway.zone or len(world.gateways) > 1:
            return
        near = [one for one in world.groups if one.zone == gateway.zone]
        there = Counter(one.group for one in gateway.machine.tries.open_tries.values() if one.is_there)
        if any(one.limit - there[one.name] > 2 for one in near):
            self.broken("", f"{act.path} goes to {group.name}, far away, and {near[0].name} is free")

    def row_owned(self, row: GatewayJob) -> None:
        self._owners.setdefault(row.name, set()).add(row.client)

    def row_changed(self, old: GatewayJob, row: GatewayJob) -> None:
        self.row_owned(row)
        if old.client != row.client and not self._world.owns(row.client, old.client):
            self.broken(row.name, f"{row.client} replaces the job of {old.client}")
        if row.is_final:
            self._ended.add(row.name)
        if row.state == DONE and row.answer is None:
            self.broken(row.name, f"{row.name} is done without an answer", LOST)

    def accepted(self, want: Want) -> None:
        self.counts["jobs accepted"] += 1
        self._check_sight(want, "accepted")
        self._accepted[want.name] = want

    def answered(self, want: Want, data: bytes) -> None:
        self.counts["answers"] += 1
        self._check_sight(want, "answered")
        if not data.startswith(want.name.encode() + b" " + want.body + b" "):
            self.broken(want.name, f"{want} was answered with {data!r}", TWICE)
        if self._answers.setdefault(want.name, data) != data:
            self.broken(want.name, f"{want.name} was answered {self._answers[want.name]!r} and {data!r}", TWICE)

    def problem(self, want: Want, code: str) -> None:
        self.counts[f"problem: {code}"] += 1
        if code == "conflict" and not self._world.is_shared(want.name):
            self.broken(want.name, f"{want} is told of a conflict with nothing")
        if code == "denied" and not self._is_taken(want):
            self.broken(want.name, f"{want} is denied, and no other client has the id")
        if code == "bad-request":
            self.broken(want.name, f"{want} is told that its request is bad")
        if code == "cancelled" and want.name not in self._cancelled:
            self.broken(want.name, f"{want} was cancelled by nobody")

    def prowled(self, want: Want, what: str) -> None:
        self.broken(want.name, f"a client that owns nothing asks for {want}, and gets {what}")

    def _check_sight(self, want: Want, what: str) -> None:
        owners = self._owners.get(want.name, set())
        if want.sight is not None and not any(want.sight.sees(owner) for owner in owners):
            self.broken(want.name, f"{want} is {what}, and the job is of {sorted(owners)}")

    def _is_taken(self, want: Want) -> bool:
        sight = want.sight
        return sight is not None and any(not sight.owns(owner) for owner in self._owners.get(want.name, ()))

    def is_gone(self, group: Group) -> None:
        """The group has said nothing for long."""
        now = self._world.clock.now
        for gateway in self._world.gateways:
            if not gateway.alive or gateway.paused or max(gateway.born_at, gateway.resumed_at) > now - GONE_S:
                continue
            for one in gateway.machine.tries.open_tries.values():
                if one.group == group.name and not one.is_received and one.since < now - GONE_S:
                    self.broken("", f"{gateway.name} lets a job wait at {group.name}, which is gone")

    def look_at_the_end(self) -> None:
        world = self._world
        for want in world.wants:
            if not want.is_over:
                self.broken(want.name, f"{want} has no answer", LOST)
        for name, want in self._accepted.items():
            row = world.store.rows.get(want.job)
            if row is None and name not in self._ended:
                self.broken(name, f"{name} was accepted, and is gone", LOST)
            elif row is None:
                continue
            elif row.state == FAILED and name not in self._cancelled and not self._excuses.get(name):
                self.broken(name, f"{name} was accepted, and failed: {row.head}", LOST)
        named: set[str] = set()
        for row in world.store.rows.rows.values():
            named |= row.files
            if not row.is_final:
                self.broken(row.name, f"{row.name} is left open", LOST)
            if missing := row.files - world.store.files.keys():
                self.broken(row.name, f"{row.name} has lost {missing}", LOST)
        if left := world.store.files.keys() - named:
            self.broken("", f"files are left: {sorted(left)}", LEAKED)
        for gateway in world.gateways:
            self._look_at(gateway)

    def _look_at(self, gateway: GatewayProcess) -> None:
        machine = gateway.machine
        left = {
            "flights": len(machine.flights.by_job),
            "queued": len(machine.flights.queue),
            "tries": len(machine.tries.open_tries) + len(gateway.tries) + len(gateway.held),
            "bodies": len(gateway.bodies),
            "requests": len(machine.requests.open_requests) + len(gateway.calls),
            "seats": machine.requests.submits,
        }
        if any(left.values()):
            self.broken("", f"{gateway.name} has left {left}", LEAKED)
        if machine.keeper.stranded:
            self.broken("", f"{gateway.name} found {machine.keeper.stranded} stranded jobs", LOST)
        for group in self._world.groups:
            if self._world.clock.now - gateway.polled_at[group.name] > POLLED_S:
                self.broken("", f"{gateway.name} asks {group.name} no more")
            if machine.state.groups.ours(group.name):
                self.broken("", f"{gateway.name} counts jobs at {group.name}", LEAKED)
