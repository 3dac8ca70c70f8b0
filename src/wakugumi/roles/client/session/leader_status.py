"""How is each of a client's leaders connected, for users? Addresses, troubles, and log lines about them.

`core/client/leaders` decides by numbers; here they have names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from wakugumi.adapters.net.connect import NO_TLS, NOT_BELIEVED
from wakugumi.adapters.net.link import Link, LinkOwner
from wakugumi.core.client import events as ev
from wakugumi.core.client.events import LeaderNo
from wakugumi.core.client.leader_row import KnownLeader
from wakugumi.core.client.leaders import SAYS_NOTHING
from wakugumi.errors import ConfigError
from wakugumi.limits.client import LEADERS_PER_CLIENT_MAX

if TYPE_CHECKING:
    from wakugumi.adapters.access.entry import AccessEntry

log = logging.getLogger("wakugumi.client")

WAITING_LOGGED_AFTER_S: Final = 1.0
"""A shorter pause of a leader is not logged."""

Dialler: TypeAlias = "Callable[[LinkOwner, AccessEntry | None], Awaitable[Link]]"
"""Makes a connection. Raises Lost if it may succeed later, another WakugumiError if it never will."""
FindAccess: TypeAlias = "Callable[[], Awaitable[AccessEntry | None]]"
"""How the next connection is made; None: plain. Raises Lost or ConfigError."""


async def _plain() -> None:
    """No access entry."""


class LeaderStatus(msgspec.Struct, frozen=True):
    """How one leader is connected."""

    leader: str
    connected: bool
    old_leader: bool
    """The leader gives no receipts, cancels no jobs and answers no questions."""
    share: int
    """The leader's part of the cap; 0 while it does not serve."""
    in_flight: int
    adopted: int
    """Jobs taken over from a lost leader."""
    leaving: bool
    """The leader was removed, and still has jobs."""
    trouble: str
    """Why the leader is not connected; empty if it is."""


class Status(msgspec.Struct, frozen=True):
    """How a client is connected."""

    leader: str
    """The address, or several with commas."""
    connected: bool
    """At least one leader serves."""
    old_leader: bool
    """All serving leaders are old: they give no receipts, cancel no jobs and answer no questions."""
    unfinished: int
    trouble: str
    """Why no leader serves; empty if one does."""
    leaders: list[LeaderStatus]


class Endpoint:
    """One leader: its address, and its last known state."""

    def __init__(self, name: str, dialler: Dialler, access: FindAccess = _plain) -> None:
        self.name = name
        self.dialler = dialler
        self.access = access
        self.no = LeaderNo(0)
        self.ready: ev.Ready | None = None
        self.trouble = "not connected yet"
        self.tried = asyncio.Event()
        """The leader has served, or could not be reached, at least once."""
        self.parted: asyncio.Future[None] | None = None
        """Done once the removed leader is disconnected."""
        self._waiting_logged = False
        """The log has a line that the leader takes no jobs; until then a timer runs to write it."""
        self._waiting_timer: asyncio.TimerHandle | None = None

    @property
    def is_own(self) -> bool:
        """The leader serves, speaks our own types, and is not being removed."""
        return self.ready is not None and not self.ready.old and self.parted is None

    def wait(self, why: str, title: str) -> None:
        """The leader takes no jobs. A new reason for a known pause is logged at once."""
        after_s = 0.0 if self._waiting_logged else WAITING_LOGGED_AFTER_S
        self.wait_no_longer()
        self._waiting_timer = asyncio.get_running_loop().call_later(after_s, self._log_waiting, why, title)

    def wait_over(self, taken: bool, title: str) -> None:
        if taken and self._waiting_logged:
            log.warning("%s takes jobs again", title)
        self.wait_no_longer()

    def wait_no_longer(self) -> None:
        self._waiting_logged = False
        if self._waiting_timer is not None:
            self._waiting_timer.cancel()
            self._waiting_timer = None

    def _log_waiting(self, why: str, title: str) -> None:
        self._waiting_logged = True
        log.warning("%s takes no jobs now: %s; waiting", title, why)


class LeaderStatuses:
    """All leaders of one client, in the order in which they were named."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._rows: dict[LeaderNo, Endpoint] = {}
        self._last_no = 0
        for endpoint in endpoints:
            self.add(endpoint)
        if not self._rows:
            raise ConfigError("a client needs a leader", "write host:port, such as localhost:5000")

    @property
    def numbers(self) -> list[LeaderNo]:
        return list(self._rows)

    @property
    def names(self) -> list[str]:
        return [endpoint.name for endpoint in self._rows.values()]

    @property
    def name(self) -> str:
        return ",".join(self.names)

    @property
    def any_serves(self) -> bool:
        """Does any of them serve?"""
        return any(endpoint.ready is not None for endpoint in self._rows.values())

    @property
    def are_several(self) -> bool:
        return len(self._rows) > 1

    @property
    def trouble(self) -> str:
        """Why none of them serves."""
        if not self.are_several:
            return next((endpoint.trouble for endpoint in self._rows.values()), "every leader was removed")
        return "; ".join(
            endpoint.trouble if endpoint.name in endpoint.trouble else f"{endpoint.name}: {endpoint.trouble}"
            for endpoint in self._rows.values()
        )

    @property
    def hint(self) -> str | None:
        """Hint for `trouble`, if not the usual one."""
        if any(endpoint.trouble == SAYS_NOTHING for endpoint in self._rows.values()):
            return "see what listens there; if it is a leader of the first version, say --old-leader (old_leader=True)"
        if NO_TLS in self.trouble:
            return "there is a key for this address, and keys are shown only over TLS: check address and port"
        if NOT_BELIEVED in self.trouble:
            return "its certificate is of another grid or role, or expired: check the address; the key was not sent"
        return None

    def opened(self, name: str) -> None:
        """The connection is established, and the leader has not greeted yet."""
        endpoint = self.find(name)
        if endpoint is not None and endpoint.ready is None:
            endpoint.trouble = SAYS_NOTHING

    def add(self, endpoint: Endpoint) -> LeaderNo:
        """Raises ConfigError if the leader is one of them already, or one too many."""
        known = self.find(endpoint.name)
        if known is not None:
            if known.parted is None:
                raise ConfigError(f"the leader {endpoint.name} is named twice", "name each leader once")
            if not known.parted.done():
                known.parted.cancel()
            known.parted = None
            return known.no
        if len(self._rows) >= LEADERS_PER_CLIENT_MAX:
            raise ConfigError(f"a client has at most {LEADERS_PER_CLIENT_MAX} leaders")
        self._last_no += 1
        endpoint.no = LeaderNo(self._last_no)
        self._rows[endpoint.no] = endpoint
        return endpoint.no

    def serving(self) -> list[tuple[str, LeaderNo]]:
        """Leaders that speak our own types."""
        return [(each.name, each.no) for each in self._rows.values() if each.is_own]

    def find(self, name: str) -> Endpoint | None:
        return next((endpoint for endpoint in self._rows.values() if endpoint.name == name), None)

    def would_stay(self, endpoint: Endpoint) -> bool:
        """Is there another leader that is not being removed?"""
        return any(other is not endpoint and other.parted is None for other in self._rows.values())

    def get(self, no: LeaderNo) -> Endpoint | None:
        return self._rows.get(no)

    async def tried(self) -> None:
        """Returns once each of them has served or could not be reached."""
        for endpoint in list(self._rows.values()):
            await endpoint.tried.wait()

    def states(self, states: Sequence[KnownLeader]) -> list[LeaderStatus]:
        by_no = {state.leader: state for state in states}
        rows: list[LeaderStatus] = []
        for no, endpoint in self._rows.items():
            state = by_no.get(no)
            ready = endpoint.ready
            rows.append(
                LeaderStatus(
                    endpoint.name,
                    connected=ready is not None,
                    old_leader=ready is not None and ready.old,
                    share=state.share if state is not None else 0,
                    in_flight=state.in_flight if state is not None else 0,
                    adopted=state.adopted if state is not None else 0,
                    leaving=endpoint.parted is not None,
                    trouble=endpoint.trouble,
                )
            )
        return rows

    # Effects of `failover`.

    def connected(self, effect: ev.Ready) -> None:
        endpoint = self._rows[effect.leader]
        endpoint.ready, endpoint.trouble = effect, ""
        endpoint.tried.set()
        log.info("connected to %s%s", endpoint.name, " (an old leader)" if effect.old else "")

    def disconnected(self, effect: ev.Away, *, served_once: bool, unfinished: int) -> None:
        """Log the loss. A single leader that has never served is logged at DEBUG: `connect` raises for it. Each of
        several leaders is logged once, until its state changes."""
        endpoint = self._rows[effect.leader]
        is_news = endpoint.ready is not None or endpoint.trouble != effect.why
        had_one = self.any_serves
        endpoint.ready, endpoint.trouble = None, effect.why
        endpoint.tried.set()
        endpoint.wait_no_longer()
        if not self.are_several:
            level = logging.WARNING if served_once else logging.DEBUG
            log.log(
                level, "no leader: %s; trying again in %.1f s, %d jobs wait", effect.why, effect.retry_in_s, unfinished
            )
            return
        level = logging.WARNING if is_news else logging.DEBUG
        log.log(level, "no leader at %s: %s; trying again in %.1f s", endpoint.name, effect.why, effect.retry_in_s)
        if had_one and not self.any_serves:
            log.warning("no leader serves: %s; %d jobs wait", self.trouble, unfinished)

    def waits(self, effect: ev.Waiting) -> None:
        self._rows[effect.leader].wait(effect.text or effect.code, self._title(effect.leader))

    def wait_over(self, effect: ev.WaitingOver) -> None:
        self._rows[effect.leader].wait_over(effect.taken, self._title(effect.leader))

    def parted(self, no: LeaderNo) -> None:
        endpoint = self._rows.pop(no)
        endpoint.wait_no_longer()
        endpoint.ready = None
        endpoint.tried.set()
        log.info("left %s, which was removed", endpoint.name)
        if endpoint.parted is not None and not endpoint.parted.done():
            endpoint.parted.set_result(None)

    def end(self, why: str) -> None:
        """The session is over."""
        for endpoint in self._rows.values():
            endpoint.ready, endpoint.trouble = None, why
            endpoint.wait_no_longer()
            endpoint.tried.set()
            if endpoint.parted is not None:
                endpoint.parted.cancel()

    def _title(self, no: LeaderNo) -> str:
        return f"the leader at {self._rows[no].name}" if self.are_several else "the leader"
