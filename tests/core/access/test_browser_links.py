"""A link is valid once and for a minute; its cookie for twelve hours, and both are bounded in number."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from wakugumi.core.access.browser_links import AskLink, BrowserLink, BrowserLinks, Holder
from wakugumi.core.access.identity import Identity, Role
from wakugumi.limits.access import BROWSER_COOKIE_S, BROWSER_LINK_S
from wakugumi.wire.messages.control import read_question

pytestmark = pytest.mark.spec("O1")

ANN = Holder(Identity("ann", Role.CLIENT, key="ann", proof="key"), 7.0)
BOB = Holder(Identity("bob", Role.READER))


def test_the_question_is_read_from_json_and_the_answer_hides_its_word() -> None:
    assert read_question(b'{"ask":"link"}') == AskLink()
    assert "secret" not in repr(BrowserLink("secret", 60.0, is_tls=True))


def test_a_link_is_opened_once() -> None:
    links = BrowserLinks()
    links.make("w", ANN, 0.0)
    assert links.open("x", "c0", 1.0) is None
    assert links.holder("w", 1.0) is None
    assert links.open("w", "c1", 1.0) == ANN
    assert links.open("w", "c2", 1.0) is None
    assert [links.holder(cookie, 1.0) for cookie in ("c0", "c1", "c2")] == [None, ANN, None]
    links.check()


@pytest.mark.parametrize(("late_s", "holder"), [(-0.001, ANN), (0.0, None), (1e9, None)])
def test_a_link_and_a_cookie_end_in_time(late_s: float, holder: Holder | None) -> None:
    links = BrowserLinks()
    links.make("w", ANN, 5.0)
    assert links.open("w", "c", 5.0 + BROWSER_LINK_S + late_s) == holder
    links = BrowserLinks()
    links.make("w", ANN, 5.0)
    assert links.open("w", "c", 6.0) == ANN
    assert links.holder("c", 6.0 + BROWSER_COOKIE_S + late_s) == holder


def test_a_late_link_does_not_open_a_second_time_either() -> None:
    links = BrowserLinks()
    links.make("w", ANN, 0.0)
    assert links.open("w", "c", BROWSER_LINK_S) is None
    assert links.open("w", "c", 0.0) is None


def test_a_dropped_cookie_is_unknown() -> None:
    links = BrowserLinks()
    links.make("w", ANN, 0.0)
    links.open("w", "c", 0.0)
    links.drop("c")
    links.drop("c")
    assert links.holder("c", 0.0) is None
    links.check()


def test_the_oldest_goes_and_first_the_own_one() -> None:
    links = BrowserLinks(links_max=3, per_name_max=2)
    for word, holder in (("b", BOB), ("a1", ANN), ("a2", ANN), ("a3", ANN)):
        links.make(word, holder, 0.0)
        links.check()
    links.make("c", Holder(Identity("cid", Role.CLIENT)), 0.0)
    links.check()
    assert [links.open(word, f"of {word}", 0.0) is not None for word in ("b", "a1", "a2", "a3", "c")] == [
        False,
        False,
        True,
        True,
        True,
    ]


class Browsers(RuleBasedStateMachine):
    """Against a plain list of all that was made."""

    def __init__(self) -> None:
        super().__init__()
        self.links = BrowserLinks(links_max=1_000, cookies_max=1_000, per_name_max=1_000)
        self.now = 0.0
        self.made: list[tuple[str, Holder, float]] = []
        self.used: set[str] = set()
        self.cookies: list[tuple[str, Holder, float]] = []

    @rule(holder=st.sampled_from([ANN, BOB]))
    def make(self, holder: Holder) -> None:
        self.made.append((f"w{len(self.made)}", holder, self.now))
        self.links.make(*self.made[-1])

    @rule(number=st.integers(0, 20))
    def open(self, number: int) -> None:
        word, cookie = f"w{number}", f"c{len(self.cookies)}"
        found = self.links.open(word, cookie, self.now)
        _, holder, made_at = self.made[number] if number < len(self.made) else ("", None, 0.0)
        is_valid = holder is not None and word not in self.used and self.now < made_at + BROWSER_LINK_S
        self.used.add(word) if number < len(self.made) else None
        assert found == (holder if is_valid else None)
        if found is not None:
            self.cookies.append((cookie, found, self.now))

    @rule(seconds=st.sampled_from([1.0, BROWSER_LINK_S, BROWSER_COOKIE_S / 2]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def knows_each_cookie_in_its_time(self) -> None:
        self.links.check()
        for cookie, holder, opened_at in self.cookies:
            is_valid = self.now < opened_at + BROWSER_COOKIE_S
            assert self.links.holder(cookie, self.now) == (holder if is_valid else None)


TestBrowsers = Browsers.TestCase
