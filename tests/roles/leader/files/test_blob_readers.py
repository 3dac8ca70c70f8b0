"""Content is for its own clients: others get the same answers as if it were not there."""

from __future__ import annotations

import pytest

from wakugumi.core.access.identity import Identity, Role, Sight
from wakugumi.limits.files import BLOB_BROUGHT_S
from wakugumi.roles.leader.files import blob_readers
from wakugumi.roles.leader.files.blob_readers import LeaderBlobReaders

pytestmark = pytest.mark.spec("O1", "C4")

ANN, BOB = Identity("ann", Role.CLIENT), Identity("bob", Role.CLIENT)
OF_ANN, CACHED, LOOSE = "a" * 64, "c" * 64, "0" * 64


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.readers = LeaderBlobReaders(self.named, lambda blob: blob == CACHED, lambda: self.now)

    def named(self, blob: str, sight: Sight | None) -> bool:
        return blob == OF_ANN and (sight is None or sight.sees("ann"))


def test_content_of_a_job_in_sight_and_of_caches_may_be_read() -> None:
    readers = World().readers
    assert [readers.may_read(ANN, blob) for blob in (OF_ANN, CACHED, LOOSE)] == [True, True, False]
    assert [readers.may_read(BOB, blob) for blob in (OF_ANN, CACHED, LOOSE)] == [False, True, False]


@pytest.mark.parametrize("role", [Role.ADMIN, Role.WORKER, Role.GATEWAY])
def test_roles_that_serve_others_read_all(role: Role) -> None:
    world = World()
    world.readers.brings(Identity("x", role), LOOSE)
    assert world.readers.may_read(Identity("x", role), LOOSE)


def test_what_one_brought_is_its_own_for_a_while() -> None:
    world = World()
    world.readers.brings(BOB, LOOSE)
    assert world.readers.may_read(BOB, LOOSE)
    assert not world.readers.may_read(ANN, LOOSE)
    world.now += BLOB_BROUGHT_S
    assert not world.readers.may_read(BOB, LOOSE)


def test_what_was_brought_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_readers, "BLOBS_BROUGHT_MAX", 3)
    world = World()
    for number in range(5):
        world.readers.brings(BOB, f"{number}" * 64)
    assert [world.readers.may_read(BOB, f"{number}" * 64) for number in range(5)] == [False, False, True, True, True]
