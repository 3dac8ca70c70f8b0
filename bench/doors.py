"""What do HTTP, a gateway and a group cost, beside the frames? (SPEC N2, G1, G2)

    make bench-http                                all of it; writes docs/internals/benchmarks-http.md
    .venv/bin/python bench/doors.py --only run     one part, shown and not written down
    … --only tiers --before ../other               and another checkout (after `make setup` there), in turns

Real processes over loopback. Whoever is compared takes turns in the same run. The client of HTTP is a bare socket with
kept-alive connections: it costs less than any library, so that what is measured is the server's.
"""

import argparse
import asyncio
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import wakugumi
from contestant import running
from environment import disk, machine
from growth import MIB, growth, random_file, shell_program, tree
from processes import WAKU, end, start_leader, working
from report import markdown_table
from wakugumi.adapters.loop.event_loop import run
from wakugumi.limits.node import RECEIVE_GRACE_S

HEADER = ("what", "measured", "goal", "verdict")
DOCUMENT = Path(__file__).absolute().parents[1] / "docs" / "internals" / "benchmarks-http.md"
INTRODUCTION = """# HTTP, groups and the gateway

Real processes over loopback; the contestants take turns in the same run, and a figure is the median of the rounds, with
the lowest and the highest in brackets. The job is a copy of `/bin/true` with one small input file. Roles and requests:
[Jobs over HTTP](../use/http.md). Made by `make bench-http`, and kept whatever the result.

CPU per job is the CPU time of a role's processes with all threads, without the programs that they ran. A bare handler
of `httptools` is a parser on a socket that writes a fixed answer: as little as Python can do. Another checkout takes
part in turns by `.venv/bin/python bench/doors.py --only tiers --only capacity --before ../other`.
"""
ROUNDS = 5
JOBS = 1_000
ONE_BY_ONE = 300
AT_ONCE = 16
CONNECTIONS = 4
SLOTS = 2
IDLE = 1_000
SLOW_S = 5.0
WRK_S = 3
QUIET = ("--log-level", "warning")
BOUNDARY = "bench"
names = itertools.count(1)
rows: list[tuple[str, str, str, str]] = []
checkouts: dict[str, tuple[str, ...]] = {"": WAKU}
"""How `waku` is started: of this checkout, and of another one that is compared."""


class Where(NamedTuple):
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> "Where":
        host, _, port = url.strip().removeprefix("http://").partition("/")[0].rpartition(":")
        return cls(host, int(port))

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def main() -> None:
    parser = argparse.ArgumentParser(description="What HTTP, groups and the gateway cost.")
    parser.add_argument("--only", choices=["run", "tiers", "capacity", "bulk"], action="append")
    parser.add_argument("--bulk-mib", type=int, default=1024, help="of the file that goes there and back")
    parser.add_argument("--write", action="store_true", help=f"write docs/internals/{DOCUMENT.name}")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="another checkout, for tiers and capacity")
    asked = parser.parse_args()
    if asked.before is not None:
        checkouts["before"] = (str(asked.before.resolve() / ".venv" / "bin" / "python"), "-m", "wakugumi")
    about = machine(sorted(os.sched_getaffinity(0)))
    place = Path(__file__).absolute().parents[1] / ".bench"
    place.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="doors-", dir=place))
    os.chdir(folder)
    try:
        about |= disk(folder)
        programs = Path("programs").absolute()
        programs.mkdir()
        (programs / "true").write_bytes(Path("/bin/true").read_bytes())
        (programs / "true").chmod(0o755)
        shell_program(programs / "copy", 'cat "$1" > copy.bin')
        for name, measure in (("run", _run), ("tiers", _tiers), ("capacity", _capacity)):
            if not asked.only or name in asked.only:
                measure(programs)
        if not asked.only or "bulk" in asked.only:
            _bulk(programs, asked.bulk_mib)
        if asked.write:
            about["Made"] = f"{time.strftime('%Y-%m-%d')}, by `make bench-http`"
            tables = markdown_table(HEADER, rows), markdown_table(("what", "value"), about.items())
            DOCUMENT.write_text(f"{INTRODUCTION}\n{tables[0]}\n\n## The machine\n\n{tables[1]}\n")
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def _row(what: str, measured: str, goal: str, met: bool) -> None:
    rows.append((what, measured, goal, "met" if met else "NOT MET"))
    print("; ".join(rows[-1]), flush=True)


def _spread(values: list[float], form: str = ".2f") -> str:
    return f"{median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


# A node beside the frames, and with idle connections.


def _run(programs: Path) -> None:
    with ExitStack() as stack:
        leader, address = start_leader("0", "--memory", *QUIET)
        stack.callback(end, leader)
        stack.enter_context(working(address, programs))
        node = stack.enter_context(_node(programs, "true"))
        run(_frames(address, 200))
        run(_requests(node, "/run/", 200, CONNECTIONS))
        frames, requests, crowded, dribbled = [], [], [], []
        for _ in range(ROUNDS):
            frames.append(run(_frames(address, JOBS)))
            requests.append(run(_requests(node, "/run/", JOBS, CONNECTIONS)))
            with _idle(node, IDLE):
                crowded.append(run(_requests(node, "/run/", JOBS, CONNECTIONS)))
            with _slow(node, IDLE):
                dribbled.append(run(_requests(node, "/run/", JOBS, CONNECTIONS)))
    ratio = median(requests) / median(frames)
    told = f"{ratio:.2f} × ({_spread(requests, '.0f')} jobs/s; frames {_spread(frames, '.0f')})"
    _row("`/run` over kept-alive HTTP, against the frames", told, "≥ 0.85 ×", ratio >= 0.85)
    for rates, who in ((crowded, "idle connections"), (dribbled, f"callers that send a byte every {SLOW_S:g} s")):
        ratio = median(rates) / median(requests)
        told = f"{ratio:.2f} × ({_spread(rates, '.0f')} jobs/s)"
        _row(f"the same with {IDLE} {who}, against without", told, "≥ 0.95 ×", ratio >= 0.95)


async def _frames(address: str, jobs: int) -> float:
    """Jobs per second, each with a small file."""
    async with wakugumi.connect(address, client_id="bench") as grid:
        begun_at = time.perf_counter()
        job = {"args": ["input.txt"], "files": {"input.txt": b"1\n"}}
        async for result in grid.map("true", (job for _ in range(jobs))):
            result.check()
        return jobs / (time.perf_counter() - begun_at)


async def _requests(where: Where, path: str, jobs: int, connections: int) -> float:
    """Jobs per second over so many kept-alive connections."""
    left = iter(range(jobs))

    async def client() -> None:
        reader, writer = await asyncio.open_connection(*where)
        for _ in left:
            name = f"{path}bench-{next(names)}"
            while True:
                if await _post(reader, writer, name) == 200:
                    break
                await asyncio.sleep(0.001)
        writer.close()

    begun_at = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(client())
    return jobs / (time.perf_counter() - begun_at)


async def _post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> int:
    writer.write(_form(path, b"1\n"))
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    lines = head.lower().split(b"\r\n")
    size = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
    await reader.readexactly(size)
    if status not in {200, 503}:
        raise RuntimeError(head.decode())
    return status


def _form(path: str, content: bytes) -> bytes:
    part = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="input.txt"\r\n\r\n'
    body = part.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def _idle(where: Where, count: int) -> Iterator[None]:
    """Connections that were used once, and are kept."""
    with ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection(where))
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            sock.recv(4096)
        yield


@contextmanager
def _slow(where: Where, count: int) -> Iterator[None]:
    """Callers whose form is on its way, a byte at a time. In the first moments all of them count as fast, and take
    slots; the rest of the time counts here."""
    over = threading.Event()
    with ExitStack() as stack:
        callers = []
        for _ in range(count):
            callers.append(stack.enter_context(socket.create_connection(where)))
            callers[-1].sendall(_form(f"/run/slow-{next(names)}", bytes(1000))[:-1000])

        def dribble() -> None:
            while not over.wait(SLOW_S):
                for caller in callers:
                    with suppress(OSError):  # The node may have refused it.
                        caller.send(b"x", socket.MSG_DONTWAIT)

        sender = threading.Thread(target=dribble)
        sender.start()
        try:
            time.sleep(RECEIVE_GRACE_S + 1)
            yield
        finally:
            over.set()
            sender.join()


# Three tiers.


class Tiers:
    """Three tiers of one checkout, and what was measured of them."""

    def __init__(self, name: str, gateway: Where, node: Where, processes: dict[str, int]) -> None:
        self.name = f" ({name})" if name else ""
        self._gateway, self._node = gateway, node
        self.direct: list[float] = []
        self.through: list[float] = []
        self.cpu: dict[str, dict[str, list[float]]] = {
            how: {role: [] for role in processes} for how in ("one by one", f"{AT_ONCE} at once")
        }
        run(_one_by_one(node, "/run/", 50))
        run(_one_by_one(gateway, "/submit/", 50))
        self._processes = {role: tree(pid) for role, pid in processes.items()}

    def measure(self) -> None:
        self.direct.append(run(_one_by_one(self._node, "/run/", ONE_BY_ONE)))
        with self._counting("one by one", ONE_BY_ONE):
            self.through.append(run(_one_by_one(self._gateway, "/submit/", ONE_BY_ONE)))
        with self._counting(f"{AT_ONCE} at once", JOBS):
            run(_requests(self._gateway, "/submit/", JOBS, AT_ONCE))

    @contextmanager
    def _counting(self, how: str, jobs: int) -> Iterator[None]:
        before = {role: _cpu_ms(pids) for role, pids in self._processes.items()}
        yield
        for role, pids in self._processes.items():
            self.cpu[how][role].append((_cpu_ms(pids) - before[role]) / jobs)

    def report(self) -> None:
        more = median(self.through) - median(self.direct)
        told = f"{more:+.2f} ms ({_spread(self.through)}; direct {_spread(self.direct)})"
        what = f"gateway → leader → node, one by one, p50, against `/run` at the node{self.name}"
        _row(what, told, "≤ 2.2 ms more", more <= 2.2)
        for how, roles in self.cpu.items():
            told = ", ".join(f"{role} {_spread(each)}" for role, each in roles.items())
            met = median(roles["gateway"]) <= 0.5 and median(roles["leader"]) <= 0.9
            _row(f"CPU per job through three tiers, {how}{self.name}, ms", told, "gateway ≤ 0.5, leader ≤ 0.9", met)


def _tiers(programs: Path) -> None:
    with ExitStack() as stack:
        tiers = [
            Tiers(name, *stack.enter_context(_three_tiers(programs, "true", waku, f"tiers-{number}")))
            for number, (name, waku) in enumerate(checkouts.items())
        ]
        for _ in range(ROUNDS):
            for one in tiers:
                one.measure()
    for one in tiers:
        one.report()


def _cpu_ms(pids: list[int]) -> float:
    """CPU time of processes with all their threads, without the programs that they ran."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return 1000 * ticks / os.sysconf("SC_CLK_TCK")


async def _one_by_one(where: Where, path: str, jobs: int) -> float:
    """Milliseconds, the median."""
    reader, writer = await asyncio.open_connection(*where)
    taken = []
    for _ in range(jobs):
        begun_at = time.perf_counter()
        status = await _post(reader, writer, f"{path}bench-{next(names)}")
        taken.append(1000 * (time.perf_counter() - begun_at))
        if status != 200:
            raise RuntimeError(f"{path} answered {status}")
    writer.close()
    return median(taken)


# The cheapest page.


def _capacity(programs: Path) -> None:
    if shutil.which("wrk") is None:
        print("wrk is not installed (`make tools`): /capacity is left out", flush=True)
        return
    with ExitStack() as stack:
        asked = {}
        for library in ("aiohttp", "httptools"):
            words = [sys.executable, str(Path(__file__).with_name("bare.py")), library]
            asked[library] = Where("127.0.0.1", int(stack.enter_context(_started(words))[1]))
        for name, waku in checkouts.items():
            about = f" ({name})" if name else ""
            asked[f"node{about}"] = stack.enter_context(_node(programs, "true", waku, f"cheap{about}"))
            words = [*waku, "leader", "0", "--memory", *QUIET]
            asked[f"leader{about}"] = Where.of(stack.enter_context(_started(words))[1])
        rates: dict[str, list[float]] = {name: [] for name in asked}
        for _ in range(ROUNDS):
            for name, where in asked.items():
                rates[name].append(_wrk(where))
    for name, library in itertools.product([name for name in asked if "tt" not in name], ("aiohttp", "httptools")):
        ratio = median(rates[name]) / median(rates[library])
        told = f"{ratio:.2f} × ({_spread(rates[name], '.0f')}/s; bare {_spread(rates[library], '.0f')})"
        _row(f"`/capacity` of a {name}, against a bare handler of {library}", told, "≥ 0.85 ×", ratio >= 0.85)


def _wrk(where: Where) -> float:
    words = ["wrk", "-t1", "-c16", f"-d{WRK_S}s", f"{where.url}/capacity"]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in told:
        raise RuntimeError(told)
    return next(float(line.split()[1]) for line in told.splitlines() if line.startswith("Requests/sec"))


# There and back.


def _bulk(programs: Path, mib: int) -> None:
    big = random_file(Path("big.bin"), mib * MIB)
    small = random_file(Path("small.bin"), MIB)
    with _three_tiers(programs, "copy") as (gateway, _, processes):
        _curl(small, f"{gateway.url}/submit/warm")  # All that is imported late is there now.
        with growth({name: tree(pid) for name, pid in processes.items()}) as grown:
            begun_at = time.perf_counter()
            _curl(big, f"{gateway.url}/submit/big")
            took_s = time.perf_counter() - begun_at
        made = subprocess.run(["unzip", "-p", "result.zip", "copy.bin"], stdout=subprocess.PIPE)
        same = subprocess.run(["cmp", "-", big], input=made.stdout).returncode == 0
    each = ", ".join(f"{name} {more:.0f}" for name, more in grown.items())
    what = f"{mib} MiB by curl through gateway, leader and node, and back as a ZIP: memory growth"
    told = f"{each} MiB ({took_s:.1f} s; {'the same bytes' if same else 'OTHER BYTES'})"
    _row(what, told, "≤ 64 MiB each", max(grown.values()) <= 64 and same)
    big.unlink()


def _curl(file: Path, url: str) -> None:
    words = ["curl", "-sSf", "-F", f"file=@{file}", url, "-o", "result.zip"]
    subprocess.run(words, check=True)


# Processes.


@contextmanager
def _three_tiers(
    programs: Path, program: str, waku: tuple[str, ...] = WAKU, folder: str = "tiers"
) -> Iterator[tuple[Where, Where, dict[str, int]]]:
    """A gateway, a durable leader that knows one node, and the node; and their process ids."""
    with ExitStack() as stack:
        node_pid, told = stack.enter_context(_started([*waku, *_node_words(programs, program, folder)]))
        node = Where.of(told.split()[0])
        words = ("leader", "0", "--state", f"{folder}/leader", "--node", node.url, "--program", program, *QUIET)
        leader_pid, told = stack.enter_context(_started([*waku, *words]))
        words = ("gateway", "0", "--group", f"one={Where.of(told).url}", "--state", f"{folder}/gateway", *QUIET)
        gateway_pid, told = stack.enter_context(_started([*waku, *words]))
        gateway = Where.of(told)
        until = time.monotonic() + 30
        while subprocess.run(["curl", "-sf", f"{gateway.url}/capacity"], capture_output=True).stdout.count(b":2") == 0:
            if time.monotonic() > until:
                raise RuntimeError("the gateway does not find its node")
            time.sleep(0.1)
        yield gateway, node, {"gateway": gateway_pid, "leader": leader_pid, "node": node_pid}
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _node(programs: Path, program: str, waku: tuple[str, ...] = WAKU, folder: str = "node") -> Iterator[Where]:
    with _started([*waku, *_node_words(programs, program, folder)]) as (_, told):
        yield Where.of(told.split()[0])
    shutil.rmtree(folder, ignore_errors=True)


def _node_words(programs: Path, program: str, folder: str) -> tuple[str, ...]:
    ports = ("--http", "0", "--lines", "0")
    folders = ("--programs", str(programs), "--jobs", f"{folder}/jobs", "--cache", f"{folder}/cache")
    return ("node", "--program", program, *ports, *folders, "--slots", str(SLOTS), "--cpu-cap", "0.95", *QUIET)


@contextmanager
def _started(words: list[str]) -> Iterator[tuple[int, str]]:
    """A process that says where it listens; its id, and what it said."""
    with running(*words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = process.stdout.readline().decode().strip()
        if not told:
            raise RuntimeError(f"{' '.join(words)} ended at once")
        yield process.pid, told


if __name__ == "__main__":
    if sys.platform != "linux":
        raise SystemExit("memory is read from /proc")
    main()
