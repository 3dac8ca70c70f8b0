"""Who is believed, and who is not."""

from __future__ import annotations

from wakugumi.core.files.trust import AccusationOutcome, Trust
from wakugumi.core.ids import WorkerId
from wakugumi.limits.files import ACCUSED_MAX, LIE_TTL_S, LIES_MAX

LIAR, FETCHER, OTHER = WorkerId(b"liar"), WorkerId(b"fetcher"), WorkerId(b"other")
NOW = 1_000.0


def test_a_worker_is_barred_after_enough_different_lies_of_which_two_tell() -> None:
    trust = Trust()
    for _ in range(5):
        assert trust.accuse(LIAR, "a", FETCHER, NOW) is AccusationOutcome.BELIEVED, "the same lie counts once"
    for at in range(LIES_MAX - 2):
        assert trust.accuse(LIAR, f"{at}", FETCHER, NOW) is AccusationOutcome.BELIEVED
        assert not trust.is_barred(LIAR, NOW)
    assert trust.accuse(LIAR, "last", OTHER, NOW) is AccusationOutcome.BARRED
    assert trust.accuse(LIAR, "more", OTHER, NOW) is AccusationOutcome.BELIEVED, "it is told once"
    assert trust.is_barred(LIAR, NOW)
    assert not trust.may_serve(LIAR, "of which it never lied", NOW)


def test_one_accuser_alone_bars_nobody() -> None:
    trust = Trust()
    for at in range(1_000):
        assert trust.accuse(LIAR, f"{at}", FETCHER, NOW) is AccusationOutcome.BELIEVED
    assert not trust.is_barred(LIAR, NOW)
    assert trust.may_serve(LIAR, "anything else", NOW)
    assert not trust.may_serve(LIAR, "999", NOW)


def test_a_lie_and_a_bar_are_forgotten_in_time() -> None:
    trust = Trust()
    for at in range(LIES_MAX):
        trust.accuse(LIAR, "a", WorkerId(b"%d" % at), NOW + at)
    assert trust.is_barred(LIAR, NOW + LIE_TTL_S - 1)
    assert not trust.is_barred(LIAR, NOW + LIE_TTL_S)
    assert not trust.may_serve(LIAR, "a", NOW + LIE_TTL_S), "of this it lied later, too"
    assert trust.may_serve(LIAR, "a", NOW + LIE_TTL_S + LIES_MAX)


def test_who_lied_about_some_content_serves_others() -> None:
    trust = Trust()
    trust.accuse(LIAR, "a", FETCHER, NOW)
    assert (trust.may_serve(LIAR, "a", NOW), trust.may_serve(LIAR, "b", NOW)) == (False, True)
    assert trust.may_serve(FETCHER, "a", NOW)


def test_several_fetchers_of_the_same_content_count_each() -> None:
    trust = Trust()
    verdicts = [trust.accuse(LIAR, "a", WorkerId(b"%d" % at), NOW) for at in range(LIES_MAX)]
    assert verdicts == [AccusationOutcome.BELIEVED] * (LIES_MAX - 1) + [AccusationOutcome.BARRED]


def test_who_accuses_too_many_is_not_believed_until_time_has_passed() -> None:
    trust = Trust()
    others = [WorkerId(b"w%d" % at) for at in range(ACCUSED_MAX + 1)]
    assert [trust.accuse(one, "a", FETCHER, NOW) for one in others][-1] is AccusationOutcome.NOT_BELIEVED
    for letter in "bcdef":
        assert trust.accuse(others[0], letter, FETCHER, NOW) is AccusationOutcome.NOT_BELIEVED
    assert not any(trust.is_barred(one, NOW) for one in others)
    assert trust.accuse(others[0], "b", FETCHER, NOW + LIE_TTL_S) is AccusationOutcome.BELIEVED
