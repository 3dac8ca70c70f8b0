"""Which group gets a job, and which is not worth waiting for? A gateway's view of its groups, from polls and its own
jobs.

    order     gone groups are left out; then those with workers, not resting, with room; inside, the choice decides
    choice    least-loaded   most of its slots free, as far as is known
              near           the same, but groups of the gateway's own zone go before others that have room as well
              hash           the same key, the same group, whatever the load: rendezvous hashing, so that only the
                             keys of a group that goes are moved

A group reports its capacity in answer to a poll. The jobs that this gateway sends there are counted here. The free
slots between two polls follow from both. Chance and time are handed in.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from wakugumi.core.backoff import backoff_s
from wakugumi.errors import ConfigError
from wakugumi.limits.gateway import GROUP_EMPTY_S, GROUP_MISSES_MAX

LEAST_LOADED: Final = "least-loaded"
NEAR: Final = "near"
HASH: Final = "hash"
CHOICES: Final = (LEAST_LOADED, NEAR, HASH)

_HASHES: Final = 1 << 64
_URL: Final = re.compile(
    r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,9}))?(/[A-Za-z0-9._~!$&'()*+;=:@%/-]*)?"
)
_AS_IN: Final = "write --group NAME=http://HOST:PORT, with ,zone=… and ,weight=…"


class GroupAt(NamedTuple):
    """A group as configured."""

    name: str
    url: str
    """URL of the group's leader, without a slash at the end."""
    zone: str = ""
    weight: float = 1.0


class Capacity(NamedTuple):
    """A group's own report."""

    running: int = 0
    limit: int = 0
    queued: int = 0
    free: int = 0
    takes_files: bool = False
    """The group takes the file of a job as it is, without a form."""


class Groups:
    """All groups of one gateway."""

    def __init__(self, groups: Sequence[GroupAt], choice: str = LEAST_LOADED, zone: str = "") -> None:
        assert choice in CHOICES
        self.by_name: dict[str, GroupAt] = {group.name: group for group in groups}
        assert len(self.by_name) == len(groups) > 0
        self._choice = choice
        self._zone = zone
        self._health = {name: _GroupHealth() for name in self.by_name}
        self._turn = 0
        """Counts calls of `order`, so that equal groups take turns."""

    def polling(self, name: str) -> None:
        """A poll begins."""
        health = self._health[name]
        health.most_ours = health.ours

    def polled(self, name: str, said: Capacity, now: float) -> None:
        """The group answered a poll. A job that was sent or ended during the poll may or may not be in the report; it
        is taken to be in. Otherwise a job that has just ended would keep a slot until the next poll."""
        health = self._health[name]
        health.said = said
        health.misses = 0
        health.others = max(0, said.limit - said.free + said.queued - health.most_ours)
        if said.limit > 0:
            health.empty_since = None
        elif health.empty_since is None:
            health.empty_since = now

    def missed(self, name: str) -> None:
        """The group did not answer a poll."""
        self._health[name].misses += 1

    def sent(self, name: str) -> None:
        """This gateway sends the group a job."""
        health = self._health[name]
        health.ours += 1
        health.most_ours = max(health.most_ours, health.ours)

    def ended(self, name: str, *, is_over: bool) -> None:
        """A job of this gateway has ended there, or the gateway lost sight of it (`is_over` is false): then it may hold
        a slot there until the next poll."""
        health = self._health[name]
        health.ours -= 1
        health.others += not is_over

    def answered(self, name: str) -> None:
        """The group answered a request of this gateway, with a success or a failure of the job."""
        health = self._health[name]
        health.failures = 0
        health.rests_until = health.full_until = 0.0

    def was_full(self, name: str, now: float, again_s: float) -> None:
        """The group refused a job because it was full."""
        self._health[name].full_until = now + again_s

    def failed(self, name: str, now: float, chance: float) -> None:
        """The group broke off, was not reached, or answered 5xx: others go first for a while, longer each time.
        Failures while the group rests count as the same failure: a hundred jobs that were there when it broke count
        once."""
        health = self._health[name]
        if now < health.rests_until:
            return
        health.failures += 1
        health.rests_until = now + backoff_s(health.failures, chance)

    def order(self, key: str, now: float) -> list[str]:
        """The groups to try, best first; without groups that are gone."""
        self._turn += 1
        names = [name for name, health in self._health.items() if not health.is_gone]
        if self._choice == HASH:
            return sorted(names, key=lambda name: (*self._trouble(name, now)[:2], -self._score(name, key)))
        turn = self._turn % len(self._health)
        turned = names[turn:] + names[:turn]
        return sorted(turned, key=lambda name: self._rank(name, now))

    @property
    def is_any_there(self) -> bool:
        """May a job be sent to any group?"""
        return not all(health.is_gone for health in self._health.values())

    def is_gone(self, name: str) -> bool:
        """Too many polls went unanswered: no job should wait there."""
        return self._health[name].is_gone

    def is_deserted(self, name: str, since: float, now: float) -> bool:
        """The group has had no workers for long, since the job has waited there, and another group has some."""
        empty_since = self._health[name].empty_since
        if empty_since is None or now - max(empty_since, since) < GROUP_EMPTY_S:
            return False
        return any(not other.is_gone and other.said.limit > 0 for other in self._health.values())

    def takes_files(self, name: str) -> bool:
        """By its last report, does the group take the file of a job without a form?"""
        return self._health[name].said.takes_files

    def refused_file(self, name: str) -> None:
        """The group does not understand a job without a form, whatever it reported: it may have been replaced."""
        health = self._health[name]
        health.said = health.said._replace(takes_files=False)

    def ours(self, name: str) -> int:
        """Jobs of this gateway at the group."""
        return self._health[name].ours

    def capacity(self) -> Capacity:
        """The sum of all groups that are not gone."""
        there = [health.said for health in self._health.values() if not health.is_gone]
        running, limit, queued, free = (sum(said[field] for said in there) for field in range(4))
        return Capacity(running, limit, queued, free)

    def states(self, now: float) -> Iterable[tuple[GroupAt, str, Capacity]]:
        """For the status page: each group, its state in one word, and its last report."""
        for name, health in self._health.items():
            resting, empty, full = self._trouble(name, now)
            word = (
                "gone" if health.is_gone else "resting" if resting else "empty" if empty else "full" if full else "ok"
            )
            yield self.by_name[name], word, health.said

    def check(self) -> None:
        for health in self._health.values():
            assert health.misses >= 0
            assert health.failures >= 0
            assert (health.failures == 0) <= (health.rests_until == 0.0)
            assert 0 <= health.ours <= health.most_ours
            assert health.others >= 0

    def _trouble(self, name: str, now: float) -> tuple[bool, bool, bool]:
        """Is the group resting, without workers, or full?"""
        health = self._health[name]
        return now < health.rests_until, health.empty_since is not None, now < health.full_until

    def _rank(self, name: str, now: float) -> tuple[bool, bool, bool, bool, float, float]:
        said, group = self._health[name].said, self.by_name[name]
        resting, empty, full = self._trouble(name, now)
        spare = self._health[name].spare
        share = spare / said.limit if said.limit else 0.0
        is_far = self._choice == NEAR and group.zone != self._zone
        return resting, empty, full or spare <= 0, is_far, -share, -group.weight

    def _score(self, name: str, key: str) -> float:
        """Rendezvous hashing: each group draws a number for the key, and the highest wins. So a group's share of all
        keys is its share of all weights."""
        digest = hashlib.blake2b(f"{name}\0{key}".encode(), digest_size=8).digest()
        drawn = (int.from_bytes(digest, "big") + 0.5) / _HASHES
        return -self.by_name[name].weight / math.log(drawn)


class _GroupHealth:
    """State of one group."""

    __slots__ = (
        *("empty_since", "failures", "full_until", "misses"),
        *("most_ours", "others", "ours", "rests_until", "said"),
    )

    def __init__(self) -> None:
        self.said = Capacity()
        self.misses = 0
        self.failures = 0
        self.rests_until = 0.0
        self.full_until = 0.0
        self.empty_since: float | None = None
        self.ours = 0
        """Jobs of this gateway at the group."""
        self.most_ours = 0
        """Highest value of `ours` since the last poll began."""
        self.others = 0
        """Slots taken by other senders, running and waiting, or not usable for another reason."""

    @property
    def spare(self) -> int:
        """Slots that the next job may find free; below zero, the number of jobs that wait already."""
        return self.said.limit - self.others - self.ours

    @property
    def is_gone(self) -> bool:
        return self.misses >= GROUP_MISSES_MAX


def parse_group(text: str) -> GroupAt:
    """`name=URL[,zone=Z][,weight=N]`. Raises ConfigError."""
    first, *options = text.split(",")
    name, is_there, url = first.partition("=")
    if not is_there or not _is_word(name):
        raise ConfigError(f"{text!r} names no group", _AS_IN)
    _check_url(name, url)
    zone, weight = "", 1.0
    for option in options:
        what, _, value = option.partition("=")
        if what == "zone" and _is_word(value):
            zone = value
        elif what == "weight" and _weight(value) > 0:
            weight = _weight(value)
        else:
            raise ConfigError(f"{option!r} of the group {name} means nothing", "write zone=WORD or weight=NUMBER")
    return GroupAt(name, url.rstrip("/"), zone, weight)


def _check_url(name: str, url: str) -> None:
    """Raises ConfigError for a URL at which no leader can be reached."""
    what = f"{url!r} of the group {name}"
    if (parts := _URL.fullmatch(url)) is None:
        raise ConfigError(f"{what} is not http or https with a host, a port and perhaps a path", _AS_IN)
    if parts["port"] is None:
        raise ConfigError(f"{what} has no port", "the default port of a leader is 5081")
    if not 1 <= int(parts["port"]) <= 65_535:
        raise ConfigError(f"{what} has the port {parts['port']}, which is out of range", "a port is 1 to 65535")


def _is_word(text: str) -> bool:
    return 0 < len(text) <= 64 and text.isascii() and text.replace("-", "").replace("_", "").replace(".", "").isalnum()


def _weight(text: str) -> float:
    """0 for text that is no finite number."""
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0
