"""What do ten thousand strangers cost a leader, and a known client beside them?

    .venv/bin/python bench/strangers.py                               10 000 strangers for a minute, some 80 s
    .venv/bin/python bench/strangers.py --strangers 500 --seconds 5   a quick look
    .venv/bin/python bench/strangers.py --known 200                   and 200 peers that stop in the midst of a frame

Real processes over loopback; the leader has keys, and TLS on its port. A known client shows a key and runs jobs one
after the other, each of them a no-op of a worker that answers at once: first alone, then beside the strangers, so what
else the machine does is in both figures. Strangers are of all `KINDS` in turn and never become anybody. One that is cut
off connects again, so many of them per second in all.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import select
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, deque
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import wakugumi
from flood import _at, _worker
from secured import at_home, leading_secured
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.net.tls import unbelieving_context
from wakugumi.core.connections.strangers import HARD
from wakugumi.limits.units import KIB, MIB
from wakugumi.limits.wire import (
    FRAME_BYTES_MAX,
    HALF_FRAMES_BYTES_MAX,
    STRANGER_DEADLINE_S,
    STRANGERS_BYTES_MAX,
    STRANGERS_MAX,
)
from wakugumi.wire import frame as fr
from wakugumi.wire.access_line import Key
from wakugumi.wire.messages.hello import WANTS_CLIENT, HelloClient
from wakugumi.wire.messages.payload import encode

HERE = Path(__file__).absolute()
RATIO_MAX = 3.0
CONNECTION_BYTES = 20 * KIB
"""What one stranger may cost beside what it sends, as `STRANGERS_MAX` has it."""
LATE_S = 5.0
"""After its deadline a stranger may live so long on a busy machine."""
WARM_S = 5.0
PAUSE_S = 0.01
"""Between two jobs of the known client: the leader keeps their results for a while, and their memory is none of the
strangers'."""


class Kind(NamedTuple):
    """What a stranger says: at once, and then again and again."""

    first: bytes = b""
    then: bytes = b""
    every_s: float = 1.0
    shakes_hands: bool = False
    """It says that over TLS, and finishes the handshake before."""


class Tls:
    """The inside of a connection over TLS that believes every server."""

    _context = unbelieving_context()

    def __init__(self, first: bytes) -> None:
        self._first = first
        self._heard, self._said = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._inside = self._context.wrap_bio(self._heard, self._said)
        self._is_done = False

    def hear(self, data: bytes = b"") -> bytes:
        """What is to be sent next; `first` once the handshake is done. Raises SSLError, which is an OSError."""
        if not self._is_done:
            self._heard.write(data)
            with suppress(ssl.SSLWantReadError):
                self._inside.do_handshake()
                self._is_done = True
                if self._first:
                    self._inside.write(self._first)
        return self._said.read()


_TLS_HELLO = Tls(b"").hear()
_WRONG_KEY = Key("desk-1", "a" * 32, "b" * 52).text
_WRONG_HELLO = fr.encode(
    fr.HELLO_CLIENT, subject="desk", payload=encode(HelloClient("desk", 4, wants=list(WANTS_CLIENT), key=_WRONG_KEY))
)
_WRONG_REQUEST = f"GET /access/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {_WRONG_KEY}\r\n\r\n".encode()
_HALF = fr.encode(fr.HELLO_CLIENT, payload=bytes(60 * KIB))
_GARBAGE = random.Random(1).randbytes(2 * KIB)

KINDS: dict[str, Kind] = {
    "silent": Kind(),
    "two bytes": Kind(b"GE"),
    "half a hello": Kind(_HALF[: 50 * KIB]),
    "a dripping hello": Kind(_HALF[:20], b"\x00"),
    "a length alone": Kind(_HALF[:4]),
    "garbage": Kind(_GARBAGE),
    "garbage in letters": Kind(b"SSH-2.0-OpenSSH_9.6\r\n", _GARBAGE.hex().encode()),
    "a hello of TLS": Kind(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + _GARBAGE[:500]),
    "half a true hello of TLS": Kind(_TLS_HELLO[: len(_TLS_HELLO) // 2]),
    "a handshake never finished": Kind(_TLS_HELLO),
    "silent over TLS": Kind(shakes_hands=True),
    "a wrong key": Kind(_WRONG_HELLO),
    "a wrong key over TLS": Kind(_WRONG_HELLO, shakes_hands=True),
    "a wrong key by HTTP over TLS": Kind(_WRONG_REQUEST, shakes_hands=True),
    "half a request line": Kind(b"GET /" + b"a" * 4 * KIB, b"a" * 100),
    "endless headers": Kind(b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X-Header: " + b"a" * KIB + b"\r\n", 0.2),
    "half a line": Kind(b"JOB " + b"a" * 100, b"a" * 100),
}
"""Strangers. To add one, add a line."""

_FRAME = fr.encode(fr.SUBMIT_JOB, subject="half", payload=bytes(FRAME_BYTES_MAX - 100))
KNOWN: dict[str, Kind] = {
    "a frame that stops": Kind(fr.encode(fr.HELLO_CLIENT, subject="half") + _FRAME[: 39 * len(_FRAME) // 40]),
}
"""Peers that say hello, and then send half of a frame."""


def main() -> None:
    parser = argparse.ArgumentParser(description="What strangers cost a leader, and a known client beside them.")
    parser.add_argument("--strangers", type=int, default=10_000)
    parser.add_argument("--known", type=int, default=0, help="peers that say hello and send most of a frame of 4 MiB")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long they are there")
    parser.add_argument("--rate", type=int, default=500, help="connections that they open per second, at most")
    parser.add_argument("--memory", action="store_true", help="a leader without a journal")
    parser.add_argument("--crowd", nargs=5, metavar=("PORT", "STRANGERS", "KNOWN", "SECONDS", "RATE"), help="be them")
    asked = parser.parse_args()
    if asked.crowd:
        port, strangers, known, seconds, rate = asked.crowd
        Crowd(int(port), int(strangers), int(known), int(rate)).play(float(seconds))
        return
    place = HERE.parents[1] / ".bench"
    place.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="strangers-", dir=place))
    os.chdir(folder)
    at_home(folder)
    try:
        _measure(asked)
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def _measure(asked: argparse.Namespace) -> None:
    with ExitStack() as roles:
        leader = roles.enter_context(leading_secured("memory" if asked.memory else "durable"))
        address = str(leader.address)
        port = roles.enter_context(_worker(address))
        with suppress(OSError):  # The HTTP server is imported now, and not in the midst.
            urllib.request.urlopen(f"http://{address}/health", timeout=30).close()
        run(_known(address, leader.client, WARM_S))
        quiet = run(_known(address, leader.client, max(5.0, asked.seconds / 3)))
        before = resident_bytes(leader.pid)
        words = [port, str(asked.strangers), str(asked.known), str(asked.seconds), str(asked.rate)]
        with ExitStack() as stack:
            watch = stack.enter_context(Watch(leader.pid))
            crowd = stack.enter_context(
                subprocess.Popen([sys.executable, str(HERE), "--crowd", *words], stdout=subprocess.PIPE, text=True)
            )
            assert crowd.stdout is not None
            crowd.stdout.readline()
            beside = run(_known(address, leader.client, asked.seconds, crowd))
            told = json.loads(crowd.communicate()[0])
        still = resident_bytes(leader.pid)
    budget = STRANGERS_BYTES_MAX + HARD * STRANGERS_MAX * CONNECTION_BYTES
    if asked.known:
        budget += HARD * HALF_FRAMES_BYTES_MAX
    grown = watch.most - before
    ratio = _at(beside, 0.99) / _at(quiet, 0.99)
    print(f"{'':<32}{'jobs':>8}{'p50, ms':>10}{'p99, ms':>10}{'max, ms':>10}")
    for what, times in (("the known client alone", quiet), ("beside the strangers", beside)):
        row = "".join(f"{_at(times, share) * 1e3:>10.2f}" for share in (0.5, 0.99, 1.0))
        print(f"{what:<32}{len(times):>8}{row}")
    print(
        f"{asked.strangers:,} strangers and {asked.known:,} half frames for {asked.seconds:.0f} s: {told['opened']:,} "
        f"connections opened, {told['cut']:,} cut off, {told['refused']:,} not made, the most at once {told['most']:,}"
    )
    print(f"longest that the leader bore one: {told['longest_s']:.1f} s; {', '.join(told['by_kind'])}")
    print(
        f"the leader's memory: {before / MIB:.0f} MiB before, {watch.most / MIB:.0f} at most, {still / MIB:.0f} after"
    )
    _verdict(f"memory grew by {grown / MIB:.0f} MiB, within {budget / MIB:.0f}", grown <= budget)
    longest_max = STRANGER_DEADLINE_S + LATE_S
    if not asked.known:
        _verdict(f"each cut off within {longest_max:.0f} s", told["longest_s"] <= longest_max)
    _verdict(f"p99 beside the strangers / alone: {ratio:.1f}, at most {RATIO_MAX:.0f}", ratio <= RATIO_MAX)


async def _known(
    address: str, access: Path, seconds: float, beside: subprocess.Popen[str] | None = None
) -> list[float]:
    """What each job took; only those that began while the strangers were there."""
    times: list[float] = []
    async with wakugumi.connect(address, client_id="known", cap=4, access=access) as grid:
        until = time.perf_counter() + seconds
        while (now := time.perf_counter()) < until and (beside is None or beside.poll() is None):
            (await grid.run("calcA", args=["x" * 120])).check()
            times.append(time.perf_counter() - now)
            await asyncio.sleep(PAUSE_S)
    return times


def _verdict(what: str, is_met: bool) -> None:
    print(f"{what}: {'met' if is_met else 'NOT MET'}")


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


class Watch:
    """The most memory of a process while this is entered."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._end = Event()
        self._thread = Thread(target=self._look)
        self.most = 0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.1):
            self.most = max(self.most, resident_bytes(self._pid))


class One:
    """A stranger that is connected."""

    def __init__(self, name: str, kind: Kind, port: int, source: int) -> None:
        self.name = name
        self.kind = kind
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.since = time.monotonic()
        self.tls = Tls(kind.first) if kind.shakes_hands else None
        self.unsent = memoryview(kind.first if self.tls is None else self.tls.hear())
        try:
            self.socket.bind((f"127.0.0.{2 + source % 200}", 0))  # Else one address runs out of ports.
            with suppress(BlockingIOError):
                self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise


class Crowd:
    """All strangers, in one process."""

    def __init__(self, port: int, strangers: int, known: int, rate: int) -> None:
        self._port = port
        self._rate = rate
        of_known, of_strangers = list(KNOWN), list(KINDS)
        self._absent = deque(of_known[at % len(of_known)] for at in range(known))
        self._absent += (of_strangers[at % len(of_strangers)] for at in range(strangers))
        self._poll = select.epoll()
        self._here: dict[int, One] = {}
        self._to_say: deque[tuple[float, One]] = deque()
        self._opened = self._refused = self._most = 0
        self._cut: Counter[str] = Counter()
        self._longest_s: Counter[str] = Counter()

    def play(self, seconds: float) -> None:
        """Tells on stdout when it begins, and how it went."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        began_at = time.monotonic()
        print("begins", flush=True)
        while (now := time.monotonic()) < began_at + seconds:
            self._open(now - began_at)
            self._go_on(now)
            for number, events in self._poll.poll(0.02):
                self._hear(self._here[number], events)
        for one in list(self._here.values()):
            self._count(one)
            one.socket.close()
        longest = max(self._longest_s.values(), default=0.0)
        kinds = [
            f"{name}: {self._cut[name]} cut, {self._longest_s[name]:.1f} s"
            for name in (*KINDS, *KNOWN)
            if self._longest_s[name]
        ]
        told = {"opened": self._opened, "cut": self._cut.total(), "refused": self._refused, "most": self._most}
        print(json.dumps({**told, "longest_s": longest, "by_kind": kinds}), flush=True)

    def _open(self, passed_s: float) -> None:
        while self._absent and self._opened + self._refused < self._rate * passed_s:
            name = self._absent.popleft()
            try:
                one = One(name, (KINDS | KNOWN)[name], self._port, self._opened)
            except OSError:
                self._refused += 1
                self._absent.append(name)
                continue
            self._opened += 1
            self._here[one.socket.fileno()] = one
            self._poll.register(one.socket, select.EPOLLIN | select.EPOLLOUT)
            if one.kind.then:
                self._to_say.append((one.since + one.kind.every_s, one))
        self._most = max(self._most, len(self._here))

    def _go_on(self, now: float) -> None:
        """Those whose time has come say more. Times differ little, so they stand nearly in order."""
        for _ in range(len(self._to_say)):
            at, one = self._to_say[0]
            if at > now:
                break
            self._to_say.popleft()
            if one.socket.fileno() >= 0:
                self._to_say.append((now + one.kind.every_s, one))
                with suppress(OSError):
                    one.socket.send(one.kind.then)

    def _hear(self, one: One, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                one.unsent = one.unsent[one.socket.send(one.unsent) if one.unsent else 0 :]
                if not one.unsent:
                    self._poll.modify(one.socket, select.EPOLLIN)
            if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                heard = one.socket.recv(64 * KIB)
                if not heard:
                    raise ConnectionResetError
                if one.tls is not None and (more := one.tls.hear(heard)):
                    one.unsent = memoryview(bytes(one.unsent) + more)
                    self._poll.modify(one.socket, select.EPOLLIN | select.EPOLLOUT)
        except BlockingIOError:
            return
        except OSError:
            self._count(one)
            self._cut[one.name] += 1
            number = one.socket.fileno()
            self._poll.unregister(number)
            one.socket.close()
            del self._here[number]
            self._absent.append(one.name)

    def _count(self, one: One) -> None:
        self._longest_s[one.name] = max(self._longest_s[one.name], time.monotonic() - one.since)


if __name__ == "__main__":
    main()
