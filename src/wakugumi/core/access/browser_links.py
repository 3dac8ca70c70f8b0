"""Which browser has opened a link, and for whom? A link's word is valid once and for a short time; it is exchanged for
a cookie's word, which is valid for hours.

    make ──► link ── open, once ──► cookie ──► holder

Only hashes of words are held, in memory. A holder is no proof by itself: its key is looked up again at each use.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from wakugumi.core.access.identity import Identity
from wakugumi.limits.access import (
    BROWSER_COOKIE_S,
    BROWSER_COOKIES_MAX,
    BROWSER_LINK_S,
    BROWSER_LINKS_MAX,
    BROWSER_WORDS_PER_NAME_MAX,
)


class AskLink(msgspec.Struct, frozen=True, tag_field="ask", tag="link"):
    """A link with which a browser is known as I am."""


class BrowserLink(msgspec.Struct, frozen=True):
    word: str
    """Path of the page: `/in/WORD`."""
    valid_s: float
    is_tls: bool
    """The browser must open it by https."""

    def __repr__(self) -> str:
        return "BrowserLink()"


class Holder(NamedTuple):
    """The identity that has asked for a link."""

    identity: Identity
    made_at: float = 0.0
    """Time when its key was made: a later key of the same name is another one. 0 without a key."""


class _Held(NamedTuple):
    holder: Holder
    until: float


class BrowserLinks:
    """Links and cookies of one role. Words are random and never repeat; `now` never goes back."""

    def __init__(
        self,
        *,
        links_max: int = BROWSER_LINKS_MAX,
        cookies_max: int = BROWSER_COOKIES_MAX,
        per_name_max: int = BROWSER_WORDS_PER_NAME_MAX,
    ) -> None:
        self._links: Final = _Words(links_max, per_name_max, BROWSER_LINK_S)
        self._cookies: Final = _Words(cookies_max, per_name_max, BROWSER_COOKIE_S)

    def make(self, word: str, holder: Holder, now: float) -> None:
        """`word` opens a cookie for this holder, once."""
        self._links.add(word, holder, now)

    def open(self, word: str, cookie: str, now: float) -> Holder | None:
        """`cookie` is the holder's from now on. None if the word is unknown, used or too old."""
        holder = self._links.take(word, now)
        if holder is not None:
            self._cookies.add(cookie, holder, now)
        return holder

    def holder(self, cookie: str, now: float) -> Holder | None:
        return self._cookies.find(cookie, now)

    def drop(self, cookie: str) -> None:
        """The key of its holder is not valid any more."""
        self._cookies.drop(cookie)

    def check(self) -> None:
        self._links.check()
        self._cookies.check()


class _Words:
    """Hashes of words that are valid for the same time each, so the oldest is the first to end."""

    def __init__(self, most: int, per_name_max: int, valid_s: float) -> None:
        self._most = most
        self._per_name_max = per_name_max
        self._valid_s = valid_s
        self._held: dict[bytes, _Held] = {}
        self._of: dict[str, dict[bytes, None]] = {}
        """Hashes by the name of their holder, the oldest first, without empty tables."""

    def add(self, word: str, holder: Holder, now: float) -> None:
        while self._held and (first := next(iter(self._held))) and self._held[first].until <= now:
            self._remove(first)
        own = self._of.get(holder.identity.name, {})
        if len(own) >= self._per_name_max:  # A holder pushes out its own words, not those of others.
            self._remove(next(iter(own)))
        if len(self._held) >= self._most:
            self._remove(next(iter(self._held)))
        found = _hash(word)
        self._held[found] = _Held(holder, now + self._valid_s)
        self._of.setdefault(holder.identity.name, {})[found] = None

    def find(self, word: str, now: float) -> Holder | None:
        held = self._held.get(_hash(word))
        return held.holder if held is not None and now < held.until else None

    def take(self, word: str, now: float) -> Holder | None:
        holder = self.find(word, now)
        self.drop(word)
        return holder

    def drop(self, word: str) -> None:
        if (found := _hash(word)) in self._held:
            self._remove(found)

    def check(self) -> None:
        assert len(self._held) <= self._most
        ends = [held.until for held in self._held.values()]
        assert ends == sorted(ends), "the oldest is the first"
        by_name = [(name, found) for name, own in self._of.items() for found in own]
        assert sorted(by_name) == sorted((held.holder.identity.name, found) for found, held in self._held.items())
        assert all(0 < len(own) <= self._per_name_max for own in self._of.values())

    def _remove(self, found: bytes) -> None:
        name = self._held.pop(found).holder.identity.name
        del self._of[name][found]
        if not self._of[name]:
            del self._of[name]


def _hash(word: str) -> bytes:
    """Looked up instead of the word, so that the time of a look-up tells nothing about it."""
    return sha256(word.encode("utf-8", "surrogateescape")).digest()
