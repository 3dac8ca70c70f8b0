"""Requests for jobs at a node's doors, before any input is read."""

from __future__ import annotations

import pytest

from wakugumi.core.access.identity import Identity, Role, Rules, Sight
from wakugumi.core.node.entrance import (
    KnownJob,
    SlotsNow,
    check_cancel,
    check_owner,
    check_request,
    check_room,
    looks_for_result,
)
from wakugumi.errors import Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX

pytestmark = pytest.mark.spec("N2", "N3")

FREE = SlotsNow(is_stopping=False, is_running=False, free=1, limit=2)
FULL = FREE._replace(free=0)


@pytest.mark.parametrize(
    ("now", "size", "looks"),
    [
        (FREE, 1, False),
        (FREE, INLINE_FILE_BYTES_MAX, False),
        (FREE, INLINE_FILE_BYTES_MAX + 1, True),
        (FREE, None, True),
        (FREE, 0, True),
        (FULL, 1, True),
        (FREE._replace(can_receive=False), 1, True),
        (FULL._replace(is_running=True), 1, False),
        (FREE._replace(is_running=True), None, False),
    ],
)
def test_the_disk_is_searched_if_that_may_save_an_input_or_a_refusal(
    now: SlotsNow, size: int | None, looks: bool
) -> None:
    assert looks_for_result(now, size) is looks


def test_a_node_that_stops_serves_no_one() -> None:
    with pytest.raises(Refused, match="takes no more jobs") as caught:
        looks_for_result(FREE._replace(is_stopping=True, is_running=True), 1)
    assert caught.value.code == "stopping"


def test_a_full_node_is_busy_for_all_but_those_that_wait_for_a_running_job() -> None:
    check_room(FREE)
    check_room(FULL._replace(is_running=True))
    with pytest.raises(Refused, match="all 2 slots are taken") as caught:
        check_room(FULL)
    assert caught.value.code == "busy"


@pytest.mark.spec("L6")
def test_the_result_of_another_request_is_a_conflict() -> None:
    for wanted, known in ((b"a", b"a"), (b"", b"a"), (b"a", b"")):
        check_request(wanted, known)
    with pytest.raises(Refused, match=r"of another request under this id$") as caught:
        check_request(b"a", b"b")
    assert caught.value.code == "conflict"
    with pytest.raises(Refused, match=r"under this id since noon$"):
        check_request(b"a", b"b", "noon")


def sight_of(name: str, sees: str = "") -> Sight:
    sight = Identity(name, Role.CLIENT, Rules(sees=sees)).sight()
    assert sight is not None
    return sight


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    ("sight", "known", "submits", "cancels"),
    [
        (sight_of("ann"), None, "", "unknown-job"),
        (sight_of("ann"), KnownJob("ann.x"), "", ""),
        (sight_of("ann"), KnownJob("ann", has_failed=True), "", ""),
        (sight_of("ann"), KnownJob("bob"), "denied", "unknown-job"),
        (sight_of("ann"), KnownJob(""), "denied", "unknown-job"),
        (sight_of("ann", "all"), KnownJob("bob"), "", "denied"),
        (sight_of("ann", "all"), KnownJob("bob", has_failed=True), "denied", "denied"),
    ],
)
def test_a_job_is_for_those_that_see_it_and_its_end_for_its_owners(
    sight: Sight, known: KnownJob | None, submits: str, cancels: str
) -> None:
    checks = (submits, lambda: check_owner(sight, known)), (cancels, lambda: check_cancel(sight, known, "x"))
    for code, check in checks:
        if code:
            with pytest.raises(Refused) as caught:
                check()
            assert caught.value.code == code
        else:
            check()
