"""A client shows its key to the leaders of its grid, inside TLS, and to nobody else."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.link_owner import Owner
from tests.kit.scripted_leader import DEADLINE_S, Peer, ScriptedLeader, scripted
from tests.kit.tls_grid import DAY_S, TlsGrid, TlsLeader

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.connect import bound_port, listen
from wakugumi.core.client.leaders import SAYS_NOTHING
from wakugumi.errors import EXIT_DENIED, ConfigError, Refused
from wakugumi.roles.client.grid import Grid, connect

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1")]


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "ann")
    for name in ("WAKU_ACCESS", "WAKU_CLIENT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("wakugumi.core.client.leaders.RECONNECT_FIRST_S", 0.05)
    return tmp_path


@pytest.fixture
def grid(tmp_path: Path) -> TlsGrid:
    return TlsGrid(tmp_path / "grid")


@pytest.fixture
async def leader(grid: TlsGrid) -> AsyncIterator[TlsLeader]:
    async with scripted(TlsLeader(grid.server(), grid.ca.certificate)) as leader:
        assert isinstance(leader, TlsLeader)
        yield leader


def hello_of(peer: Peer) -> dict[str, object]:
    """What the client said first."""
    found = json.loads(peer.seen[0].payload)
    assert isinstance(found, dict)
    return found


async def works(grid: Grid, peer: Peer) -> None:
    """A job goes there and back."""
    job = await grid.submit("calc")
    peer.result((await peer.submits(1))[0], stdout="done")
    async with asyncio.timeout(DEADLINE_S):
        assert (await job).stdout == "done"


async def met(leader: ScriptedLeader, url: str, stack: AsyncExitStack, **options: object) -> tuple[Grid, Peer]:
    tasks = Tasks()
    stack.push_async_callback(tasks.close)
    coming = tasks.start(leader.peer(), name="the client comes")
    there = await stack.enter_async_context(connect(url, **options))  # type: ignore[arg-type]
    return there, await coming


async def test_a_key_in_the_address_is_shown_in_the_hello(grid: TlsGrid, leader: TlsLeader) -> None:
    key = grid.key()
    async with AsyncExitStack() as stack:
        there, peer = await met(leader, grid.line(leader.port, key), stack)
        assert hello_of(peer)["Key"] == key.text
        assert str(hello_of(peer)["ClientId"]).startswith("desk-1.ann@")
        assert there.leaders == [f"127.0.0.1:{leader.port}"]
        assert key.secret not in f"{there.status()!r}"
        await works(there, peer)


@pytest.mark.parametrize("name", ["admin", "client"])
async def test_the_first_keys_of_a_grid_do_not_change_the_clients_name(
    grid: TlsGrid, leader: TlsLeader, name: str
) -> None:
    async with AsyncExitStack() as stack:
        _, peer = await met(leader, grid.line(leader.port, grid.key(name)), stack)
        assert str(hello_of(peer)["ClientId"]).startswith("ann@")


async def test_the_access_file_has_the_key_of_an_address(grid: TlsGrid, leader: TlsLeader, home: Path) -> None:
    key = grid.key()
    file = grid.write_access(home / "a" / "access.toml", grid.entry(leader.port, key))
    async with AsyncExitStack() as stack:
        there, peer = await met(leader, f"127.0.0.1:{leader.port}", stack, access=file, client_id="me")
        assert (hello_of(peer)["Key"], hello_of(peer)["ClientId"]) == (key.text, "me")
        await works(there, peer)
    assert leader.asked_for_ca == 0


async def test_a_refused_key_ends_the_wait_at_once(grid: TlsGrid, leader: TlsLeader) -> None:
    leader.own = False

    async def refuse() -> None:
        (await leader.peer()).refuse_hello("the key is not valid here")

    tasks = Tasks()
    refusing = tasks.start(refuse(), name="a refusal")
    began = time.monotonic()
    with pytest.raises(Refused, match="the key is not valid here") as raised:
        async with connect(grid.line(leader.port, grid.key()), connect_timeout_s=60):
            pass
    await refusing
    assert (raised.value.code, raised.value.exit_code) == ("denied", EXIT_DENIED)
    assert time.monotonic() - began < DEADLINE_S
    assert leader.connections == 2, "one for the certificate, one for the hello: no further try"


async def test_a_key_that_is_revoked_later_ends_what_waits(grid: TlsGrid, leader: TlsLeader) -> None:
    async with AsyncExitStack() as stack:
        there, peer = await met(leader, grid.line(leader.port, grid.key()), stack)
        job = await there.submit("calc")
        await peer.submits(1)
        leader.own = False
        peer.hang_up()
        (await leader.peer()).refuse_hello("the key is not valid here")
        with pytest.raises(Refused, match="the key is not valid here"):
            async with asyncio.timeout(DEADLINE_S):
                await job


async def test_a_man_in_the_middle_gets_no_byte_of_a_key(grid: TlsGrid, tmp_path: Path, home: Path) -> None:
    other = TlsGrid(tmp_path / "other")
    key = grid.key()
    for answer in (other.ca.certificate, grid.ca.certificate):  # His own authority, or the right one, which is public.
        async with scripted(TlsLeader(other.server(), answer)) as middle:
            assert isinstance(middle, TlsLeader)
            file = grid.write_access(home / f"{middle.port}" / "access.toml", grid.entry(middle.port, key))
            for url, access in ((grid.line(middle.port, key), None), (f"127.0.0.1:{middle.port}", file)):
                with pytest.raises((Refused, ConfigError)) as raised:
                    async with connect(url, access=access, connect_timeout_s=0.3):
                        pass
                assert "not sent" in (raised.value.hint or ""), raised.value
                assert key.secret not in f"{raised.value} {raised.value.hint}"
            for part in (key.secret, key.text, key.secret[:8], key.name):
                assert part.encode() not in middle.received
            assert bytes(middle.received).count(b"\r\n\r\n") == middle.asked_for_ca == 1, "only a public page"


@pytest.mark.parametrize(("role", "age_days"), [("worker", 0), ("gateway", 0), ("leader", 100)])
async def test_a_certificate_of_another_role_or_time_is_not_believed(
    grid: TlsGrid, home: Path, role: str, age_days: float
) -> None:
    tls = grid.server(role, now=time.time() - age_days * DAY_S)
    async with scripted(TlsLeader(tls, grid.ca.certificate)) as leader:
        assert isinstance(leader, TlsLeader)
        file = grid.write_access(home / "a" / "access.toml", grid.entry(leader.port, grid.key()))
        with pytest.raises(Refused, match="is not believed") as raised:
            async with connect(f"127.0.0.1:{leader.port}", access=file, connect_timeout_s=0.3):
                pass
        assert raised.value.code == "no-leader"
        assert not leader.received


async def test_after_a_lost_connection_a_renewed_certificate_is_met(grid: TlsGrid, leader: TlsLeader) -> None:
    async with AsyncExitStack() as stack:
        there, peer = await met(leader, grid.line(leader.port, grid.key()), stack)
        grid.certify(leader.tls)
        peer.hang_up()
        again = await leader.peer()
        await works(there, again)
        assert leader.asked_for_ca == 1


async def test_a_leader_whose_certificate_has_expired_is_waited_for(grid: TlsGrid, leader: TlsLeader) -> None:
    async with AsyncExitStack() as stack:
        there, peer = await met(leader, grid.line(leader.port, grid.key()), stack)
        grid.certify(leader.tls, now=time.time() - 100 * DAY_S)
        peer.hang_up()
        await eventually(lambda: "is not believed: certificate has expired" in there.status().trouble)
        grid.certify(leader.tls)
        await works(there, await leader.peer())


async def test_a_silent_leader_behind_tls_is_never_an_old_one(grid: TlsGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.client.leaders.WELCOME_WITHIN_S", 0.05)
    monkeypatch.setattr("wakugumi.core.client.leaders.WELCOME_AGAIN_WITHIN_S", 0.1)
    async with scripted(TlsLeader(grid.server(), grid.ca.certificate, own=False)) as leader:
        with pytest.raises(Refused, match=SAYS_NOTHING):
            async with connect(grid.line(leader.port, grid.key()), old_leader=True, connect_timeout_s=0.5):
                pass


async def test_a_plain_leader_gets_no_key(grid: TlsGrid, home: Path) -> None:
    plain = await listen("127.0.0.1", 0, Owner)
    port = bound_port(plain)
    file = grid.write_access(home / "a" / "access.toml", grid.entry(port, grid.key()))
    with pytest.raises(Refused, match=f"the server at 127.0.0.1:{port} does not speak TLS: ") as raised:
        async with connect(f"127.0.0.1:{port}", access=file, connect_timeout_s=0.5):
            pass
    assert raised.value.code == "no-leader"
    assert "only over TLS" in (raised.value.hint or "")
    plain.close()


async def test_several_leaders_of_different_grids_get_each_their_own_key_and_one_is_lost(
    grid: TlsGrid, leader: TlsLeader, tmp_path: Path, home: Path
) -> None:
    other = TlsGrid(tmp_path / "other")
    one, two = grid.key("one"), other.key("two")
    async with AsyncExitStack() as stack:
        second = await stack.enter_async_context(scripted(TlsLeader(other.server(), b"")))
        plain = await stack.enter_async_context(scripted())
        file = grid.write_access(
            home / "a" / "access.toml", grid.entry(leader.port, one), other.entry(second.port, two)
        )
        tasks = Tasks()
        stack.push_async_callback(tasks.close)
        coming = [tasks.start(each.peer(), name="the client comes") for each in (leader, second, plain)]
        url = ",".join(f"127.0.0.1:{each.port}" for each in (leader, second, plain))
        there = await stack.enter_async_context(connect(url, access=file, grace_s=0.2, cap=6))
        peers = [await each for each in coming]
        assert [hello_of(peer).get("Key") for peer in peers] == [one.text, two.text, None]
        jobs = [await there.submit("calc") for _ in range(3)]
        theirs = [(await peer.submits(1))[0] for peer in peers]
        leader.stop_listening()
        peers[0].hang_up()
        peers[1].refuse_hello("no longer")
        adopted = await peers[2].submits(2)
        assert {*adopted} == {*theirs[:2]}
        for job_id in (*adopted, theirs[2]):
            peers[2].result(job_id, stdout="done")
        async with asyncio.timeout(DEADLINE_S):
            assert [(await job).stdout for job in jobs] == ["done"] * 3
