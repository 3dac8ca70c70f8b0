"""Who is believed, and who is not."""

from __future__ import annotations

from wakugumi.core.job import WorkerId
from wakugumi.core.trust import Trust, Verdict
from wakugumi.limits import ACCUSED_MAX, LIES_MAX

LIAR, FETCHER = WorkerId(b"liar"), WorkerId(b"fetcher")


def test_a_worker_is_barred_after_enough_different_lies_and_stays_so() -> None:
    trust = Trust()
    for _ in range(5):
        assert trust.accuse(LIAR, "a", FETCHER) is Verdict.BELIEVED, "the same lie counts once"
    for at in range(LIES_MAX - 2):
        assert trust.accuse(LIAR, f"{at}", FETCHER) is Verdict.BELIEVED
        assert not trust.is_barred(LIAR)
    assert trust.accuse(LIAR, "last", FETCHER) is Verdict.BARRED
    assert trust.accuse(LIAR, "more", FETCHER) is Verdict.BELIEVED, "it is told once"
    trust.went(LIAR)
    assert trust.is_barred(LIAR)
    assert not trust.may_serve(LIAR, "of which it never lied")


def test_who_lied_about_some_content_serves_others() -> None:
    trust = Trust()
    trust.accuse(LIAR, "a", FETCHER)
    assert (trust.may_serve(LIAR, "a"), trust.may_serve(LIAR, "b")) == (False, True)
    assert trust.may_serve(FETCHER, "a")


def test_several_fetchers_of_the_same_content_count_each() -> None:
    trust = Trust()
    verdicts = [trust.accuse(LIAR, "a", WorkerId(b"%d" % at)) for at in range(LIES_MAX)]
    assert verdicts == [Verdict.BELIEVED] * (LIES_MAX - 1) + [Verdict.BARRED]


def test_who_accuses_too_many_is_not_believed_until_it_comes_back() -> None:
    trust = Trust()
    others = [WorkerId(b"w%d" % at) for at in range(ACCUSED_MAX + 1)]
    assert [trust.accuse(one, "a", FETCHER) for one in others][-1] is Verdict.NOT_BELIEVED
    for letter in "bcdef":
        assert trust.accuse(others[0], letter, FETCHER) is Verdict.NOT_BELIEVED
    assert not any(map(trust.is_barred, others))
    trust.went(FETCHER)
    assert trust.accuse(others[0], "b", FETCHER) is Verdict.BELIEVED
