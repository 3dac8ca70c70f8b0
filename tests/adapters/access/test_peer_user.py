"""The user at the other end: our own, another one, and peers that only seem to be root."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import pwd
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wakugumi.adapters.access import peer_user
from wakugumi.adapters.access.peer_user import groups_of, is_local, peer_uid
from wakugumi.adapters.loop.event_loop import new_loop

pytestmark = [pytest.mark.spec("O1"), pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")]


def own_addresses() -> list[str]:
    """Addresses of this machine beside loopback: those that a route to elsewhere would use. No packet is sent."""
    found = []
    for family, far in ((socket.AF_INET, "198.51.100.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))
            found.append(probe.getsockname()[0])
    return found


@contextlib.contextmanager
def pair(host: str, target: str | None = None, source: str = "") -> Iterator[tuple[socket.socket, socket.socket]]:
    """The accepted and the calling end of a connection."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::")
    except OSError as error:
        pytest.skip(f"{host} cannot be used here: {error}")
    with listener:
        port = listener.getsockname()[1]
        calling = socket.create_connection((target or host, port), 10, (source, 0) if source else None)
        with calling, listener.accept()[0] as accepted:
            yield accepted, calling


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1"])
def test_a_peer_over_loopback_is_its_user(host: str) -> None:
    with pair(host) as (accepted, calling):
        assert is_local(accepted.getsockname(), accepted.getpeername())
        assert peer_uid(accepted) == os.getuid()
        assert peer_uid(calling) == os.getuid()


def test_a_peer_over_an_address_of_this_machine_is_its_user() -> None:
    addresses = own_addresses()
    if not addresses:
        pytest.skip("no route leads out of this machine")
    for address in addresses:
        with pair(address) as (accepted, _):
            assert is_local(accepted.getsockname(), accepted.getpeername())
            assert peer_uid(accepted) == os.getuid()


def test_a_peer_from_another_address_of_this_machine_is_its_user() -> None:
    for address in own_addresses():
        if ":" not in address:
            with pair("127.0.0.1", source=address) as (accepted, _):
                assert is_local(accepted.getsockname(), accepted.getpeername())
                assert peer_uid(accepted) == os.getuid()


@pytest.mark.parametrize("target", ["127.0.0.1", "::ffff:127.0.0.1", "::1"])
def test_a_port_of_both_families_knows_peers_of_both(target: str) -> None:
    with pair("::", target) as (accepted, calling):
        assert accepted.family == socket.AF_INET6
        assert is_local(accepted.getsockname(), accepted.getpeername())
        assert peer_uid(accepted) == peer_uid(calling) == os.getuid()


def test_a_mapped_caller_of_an_old_port_is_known() -> None:
    with pair("127.0.0.1", "::ffff:127.0.0.1") as (accepted, _):
        assert peer_uid(accepted) == os.getuid()


def test_ends_of_a_socketpair_and_of_a_unix_socket_are_known(tmp_path: Path) -> None:
    one, two = socket.socketpair()
    with one, two:
        assert peer_uid(one) == peer_uid(two) == os.getuid()
        assert is_local(one.getsockname(), one.getpeername())
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as calling:
        listener.bind(str(tmp_path / "port"))
        listener.listen()
        calling.connect(str(tmp_path / "port"))
        with listener.accept()[0] as accepted:
            assert peer_uid(accepted) == os.getuid()


CALLER = """
import os, socket, struct, sys
uid, host, port, how = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
if uid >= 0:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
call = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
call.connect((host, port))
if how == "reset":
    call.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
if how != "stay":
    call.sendall(b"hello")
    call.close()
print("done", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def caller(uid: int, port: int, how: str, host: str = "127.0.0.1") -> Iterator[None]:
    """A process that has connected, and with `how` also sent and closed its end; it lives until the end."""
    command = [sys.executable, "-c", CALLER, str(uid), host, str(port), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"done\n"
            yield
        finally:
            process.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_another_user_is_known_as_itself(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as listener,
        caller(12345, listener.getsockname()[1], "stay", host),
        listener.accept()[0] as accepted,
    ):
        assert peer_uid(accepted) == 12345


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_overflow_user_is_nobody() -> None:
    number = int(Path("/proc/sys/kernel/overflowuid").read_text())
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        caller(number, listener.getsockname()[1], "stay"),
        listener.accept()[0] as accepted,
    ):
        assert peer_uid(accepted) is None


@pytest.mark.user_dependent
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_peer_that_sends_and_closes_at_once_is_nobody(how: str) -> None:
    uid = 12345 if os.geteuid() == 0 else -1
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        caller(uid, listener.getsockname()[1], how),
        listener.accept()[0] as accepted,
    ):
        assert peer_uid(accepted) is None
        assert peer_uid(accepted) is None


@pytest.mark.user_dependent
def test_a_peer_whose_close_waits_for_unread_bytes_is_nobody() -> None:
    """Its socket stays in the state of closing, without an owner, until all is read."""
    with pair("127.0.0.1") as (accepted, calling):
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        calling.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                calling.send(bytes(65536))
        calling.close()
        assert peer_uid(accepted) is None


def test_a_peer_that_answers_our_end_of_the_stream_with_its_own_is_nobody() -> None:
    with pair("127.0.0.1") as (accepted, calling):
        accepted.shutdown(socket.SHUT_WR)
        assert calling.recv(1) == b""
        calling.close()
        assert peer_uid(accepted) is None


def test_an_established_peer_that_no_process_has_yet_is_nobody() -> None:
    """The kernel completes a connection before the server accepts it; until then the kernel reports user 0."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as calling:
        calling.connect(listener.getsockname())
        assert peer_uid(calling) is None
        with listener.accept()[0]:
            assert peer_uid(calling) == os.getuid()


def test_a_listener_on_the_port_of_a_peer_that_left_is_not_the_peer() -> None:
    for _ in range(100):  # Another process may have a connection with the same port number.
        with pair("127.0.0.1") as (accepted, calling), contextlib.ExitStack() as stack:
            host, port = calling.getsockname()
            calling.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            calling.close()
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server((host, port)))
                assert peer_uid(accepted) is None
                return
    pytest.fail("no port could be listened on")


def test_sockets_that_are_no_connection_are_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert peer_uid(listener) is None
    assert peer_uid(listener) is None  # Closed.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as letters:
        letters.connect(("127.0.0.1", 9))
        assert peer_uid(letters) is None


def test_where_the_system_does_not_tell_there_is_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise PermissionError

    with pair("127.0.0.1") as (accepted, _):
        with monkeypatch.context() as patch:
            patch.setattr(peer_user.socket, "socket", refuse)
            assert peer_uid(accepted) is None
        assert peer_uid(accepted) == os.getuid()


def test_many_threads_get_their_own_answers() -> None:
    """Half of them ask about a peer that is there, half about one that is gone."""
    wrong: list[object] = []

    def ask(sock: socket.socket, expected: int | None) -> None:
        wrong.extend(found for found in (peer_uid(sock) for _ in range(300)) if found != expected)

    with pair("127.0.0.1") as (here, _), pair("::1") as (gone, calling):
        calling.close()
        threads = [threading.Thread(target=ask, args=one) for one in [(here, os.getuid()), (gone, None)] * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_forked_process_asks_for_itself() -> None:
    with pair("127.0.0.1") as (accepted, _):
        assert peer_uid(accepted) == os.getuid()
        child = multiprocessing.get_context("fork").Process(target=ask_often, args=(accepted,))
        child.start()
        ask_often(accepted)
        child.join(60)
        assert child.exitcode == 0


def ask_often(sock: socket.socket) -> None:
    assert all(peer_uid(sock) == os.getuid() for _ in range(100))


@pytest.mark.parametrize("new", [new_loop, asyncio.new_event_loop])
def test_the_socket_of_a_transport_will_do(new: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def serve() -> int | None:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[int | None] = loop.create_future()

        class Asking(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                found.set_result(peer_uid(transport.get_extra_info("socket")))
                transport.close()

        server = await loop.create_server(Asking, "127.0.0.1", 0)
        calling, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
        try:
            return await asyncio.wait_for(found, 20)
        finally:
            calling.close()
            server.close()
            await server.wait_closed()

    with asyncio.Runner(loop_factory=new) as runner:
        assert runner.run(serve()) == os.getuid()


@pytest.mark.parametrize(
    ("here", "there", "local"),
    [
        (("127.0.0.1", 1), ("127.0.0.1", 2), True),
        (("::ffff:127.0.0.1", 1, 0, 0), ("::ffff:127.0.0.1", 2, 0, 0), True),
        (("10.0.0.5", 1), ("10.0.0.5", 2), True),
        (("10.0.0.5", 1), ("::ffff:10.0.0.5", 2, 0, 0), True),
        (("10.0.0.5", 1), ("10.0.0.6", 2), False),
        (("::1", 1, 0, 0), ("::1", 2, 0, 0), True),
        (("fe80::1", 1, 0, 2), ("fe80::1%eth0", 2, 0, 2), True),
        (("fe80::1", 1, 0, 2), ("fe80::1%eth1", 2, 0, 3), False),
        (("2001:db8::1", 1, 0, 0), ("2001:db8::2", 2, 0, 0), False),
        (("10.0.0.5", 1), ("nonsense", 2), False),
        ("", "", True),
        ("/run/port", "", True),
    ],
)
def test_addresses_say_whether_a_peer_can_be_on_this_machine(here: object, there: object, local: bool) -> None:
    assert is_local(here, there) is local


def test_a_user_has_the_groups_of_the_system() -> None:
    user = pwd.getpwuid(0)
    assert groups_of(0) == frozenset(os.getgrouplist(user.pw_name, user.pw_gid)) >= {user.pw_gid}
    assert groups_of(4_000_000_000) == frozenset()
    assert groups_of(2**80) == frozenset()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_peer_that_closed_its_half_and_waits_is_its_user(host: str) -> None:
    with pair(host) as (accepted, calling):
        calling.shutdown(socket.SHUT_WR)
        assert accepted.recv(1) == b""
        assert peer_uid(accepted) == os.geteuid()
        calling.close()
        assert peer_uid(accepted) is None
