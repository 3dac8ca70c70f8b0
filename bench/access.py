"""What do keys and TLS cost? (SPEC O1, N5)

    make bench-access                                          all of it; writes docs/internals/benchmarks-access.md
    .venv/bin/python bench/access.py --only uploads --mib 64   one part and smaller, shown and not written down
    … --only embedded --before ../other                        `waku run` against another checkout (`make setup` there)

Real processes over loopback. Whoever is compared takes turns in the same run: one round is a turn of each, and a ratio
is of one round. The yardstick of an upload is curl to a server that decrypts and counts, and stores nothing.
"""

import argparse
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

import wakugumi
from contestant import running
from environment import disk, machine
from growth import MIB, random_file, timed
from leader import WINDOW, _all, _apart_from, _crew
from processes import WAKU, end, start_leader
from report import VERDICT_HEADER, Answer, Figure, Goal, Ratio, Results, Row, judge_figure, judge_ratio, markdown_table
from secured import Secured, at_home, leading_secured
from wakugumi.adapters.access.dialled import url_of
from wakugumi.adapters.access.state_folder import AccessFolder
from wakugumi.adapters.blobs.place_http import HttpPlace
from wakugumi.adapters.blobs.store import ref_of_file
from wakugumi.adapters.loop.event_loop import run
from wakugumi.core.access.known_as import AskMe
from wakugumi.wire import frame as fr
from wakugumi.wire.access_line import write_authorization
from wakugumi.wire.messages.hello import WANTS_CLIENT, HelloClient
from wakugumi.wire.messages.payload import encode

HERE = Path(__file__).absolute()
DOCUMENT = HERE.parents[1] / "docs" / "internals" / "benchmarks-access.md"
INTRODUCTION = """# Keys and TLS

Real processes over loopback; the contestants take turns in the same run. A ratio is of one round, and the median of the
rounds counts. CPU is that of the leader's process with all its threads. An upload is on the disk and verified at the
leader; the bare server decrypts, counts and forgets. Commands may be 5 % slower, for noise: where the whole spread is
above 1, they are slower all the same. The other checkout is older by more than keys and TLS.
Degrees and keys: [Security](../operate/security.md). Kept whatever the result.
"""
TITLES = {
    "keys": "TLS and a key",
    "uid": "the user by the kernel",
    "plain": "plain loopback",
    "curl": "curl to the leader",
    "client": "the client to the leader",
    "bare": "curl to a bare server",
    "here": "this checkout",
    "before": "the other checkout",
}
"""Contestants."""
RATIOS = {
    "jobs": (
        Ratio("no-op jobs/s with TLS and keys", "jobs", "per_s", "keys", ("plain",), Goal("at least", 0.8)),
        Ratio("leader CPU per no-op job with TLS and keys", "jobs", "leader_cpu_us", "keys", ("plain",)),
    ),
    "uploads": (
        Ratio("upload by curl over TLS with a key", "uploads", "mib_per_s", "curl", ("bare",), Goal("at least", 0.7)),
        Ratio("upload by our client over TLS", "uploads", "mib_per_s", "client", ("bare",), Goal("at least", 0.7)),
    ),
    "embedded": tuple(
        Ratio(f"`waku {word}` embedded, {what}", word, measure, "here", ("before",), Goal("at most", 1.05))
        for word in ("run", "map")
        for measure, what in (("wall_ms", "time"), ("cpu_ms", "CPU"))
    ),
}
FIGURES = {
    "connections": (
        Figure("cpu_ms", "leader CPU per connection, by uid", "ms", Goal("at most", 0.5), ("uid", "connections")),
        Figure("cpu_ms", "the same, by key over TLS", "ms", Goal("at most", 10), ("keys", "connections")),
    ),
}
PARTS = ("jobs", "uploads", "connections", "embedded")
COMMANDS = {"run": ("run", "/bin/true"), "map": ("map", "/bin/true", "inputs")}


def main() -> None:
    parser = argparse.ArgumentParser(description="What keys and TLS cost.")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=30_000, help="no-op jobs of a turn")
    parser.add_argument("--mib", type=int, default=1024, help="of an upload")
    parser.add_argument("--connections", type=int, default=500, help="of a turn")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="another checkout, for `waku run` and `waku map`")
    parser.add_argument("--write", action="store_true", help=f"write docs/internals/{DOCUMENT.name}")
    parser.add_argument("--bare", type=Path, metavar="FOLDER", help="be the bare server, with this certificate")
    asked = parser.parse_args()
    if asked.bare:
        _serve_bare(asked.bare)
        return
    before = asked.before and asked.before.resolve()
    cpus = sorted(os.sched_getaffinity(0))
    about = machine(cpus)
    place = HERE.parents[1] / ".bench"
    place.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="access-", dir=place))
    os.chdir(folder)
    at_home(folder)
    results = Results()
    try:
        about |= disk(folder)
        parts = [part for part in PARTS if not asked.only or part in asked.only]
        if "embedded" in parts:
            _embedded(results, asked.rounds, before)
        if parts != ["embedded"]:
            with _plain() as plain, leading_secured("memory") as secured:
                if "connections" in parts:
                    _connections(results, asked.rounds, asked.connections, plain, secured)
                if "uploads" in parts:
                    _uploads(results, asked.rounds, asked.mib, secured)
                if "jobs" in parts:
                    run(_jobs(results, asked.rounds, asked.jobs, plain, secured))
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    verdicts = judged(results, parts)
    absolute = readings(results)
    for row in (*verdicts, *absolute):
        print("; ".join(row))
    if asked.write:
        about["Load after the run"] = f"{os.getloadavg()[0]:.2f}"
        words = f"--rounds {asked.rounds} --jobs {asked.jobs} --mib {asked.mib} --connections {asked.connections}"
        only = "".join(f" --only {part}" for part in asked.only or ())
        before_words = " --before ../other" if before else ""
        about["Made"] = f"{time.strftime('%Y-%m-%d')}, by `bench/access.py {words}{only}{before_words}`"
        if (load := max(float(about[f"Load {when} the run"]) for when in ("before", "after"))) > len(cpus):
            about["Busy"] = (
                f"yes, others used the machine too (load {load:.1f} on {len(cpus)} cores): ratios are in doubt"
            )
        tables = (
            markdown_table(VERDICT_HEADER, verdicts),
            markdown_table(("contestant", "turn", "measure", "each round"), absolute),
            markdown_table(("what", "value"), about.items()),
        )
        text = "\n\n".join([tables[0], "## Absolute numbers", tables[1], "## The machine", tables[2]])
        DOCUMENT.write_text(f"{INTRODUCTION}\n{text}\n")


# Arithmetic.


def judged(results: Results, parts: list[str]) -> list[list[str]]:
    """A row for each goal of these parts, also for those without a reading."""
    rows: list[Row] = []
    for part in parts:
        rows += [judge_ratio(ratio, results, TITLES) for ratio in RATIOS.get(part, ())]
        rows += [judge_figure(figure, results) for figure in FIGURES.get(part, ())]
    return [[row.what, row.value, row.spread, row.goal, row.verdict] for row in rows]


def readings(results: Results) -> list[list[str]]:
    rows = []
    for (entry, event), rounds in results.readings.items():
        for measure in next(iter(rounds.values())):
            each = ", ".join(f"{value:.4g}" for value in results.by_round(entry, event, measure).values())
            rows.append([TITLES[entry], event, measure, each])
    return rows


def jobs_reading(jobs: int, seconds: float, cpu_s: float) -> Answer:
    return {"per_s": jobs / seconds, "leader_cpu_us": cpu_s / jobs * 1e6}


def connections_reading(connections: int, seconds: float, cpu_s: float) -> Answer:
    """Milliseconds per connection."""
    return {"cpu_ms": cpu_s / connections * 1e3, "wall_ms": seconds / connections * 1e3}


# Leaders.


@contextmanager
def _plain() -> Iterator[tuple[int, str]]:
    """A leader on loopback alone: its process id and its address."""
    leader, address = start_leader("0", "--memory", "--log-level", "warning")
    try:
        yield leader.pid, address
    finally:
        end(leader)


def _cpu_s(pid: int) -> float:
    """CPU time of another process with all its threads, from its clock: /proc counts in hundredths of a second."""
    return time.clock_gettime((~pid << 3) | 2)


# No-op jobs.


async def _jobs(results: Results, rounds: int, jobs: int, plain: tuple[int, str], secured: Secured) -> None:
    pid, address = plain
    leaders = {"plain": pid, "keys": secured.pid}
    with ExitStack() as stack:
        stack.enter_context(_apart_from(psutil.Process(pid)))
        psutil.Process(secured.pid).cpu_affinity(psutil.Process(pid).cpu_affinity())
        stack.enter_context(_crew(address, 1, 1_000))
        stack.enter_context(_crew(str(secured.address), 1, 1_000, secured.worker))
        async with (
            wakugumi.connect(address, client_id="bench", cap=WINDOW) as open_grid,
            wakugumi.connect(str(secured.address), client_id="bench", cap=WINDOW, access=secured.client) as grid,
        ):
            grids = {"plain": open_grid, "keys": grid}
            for each, proof in ((open_grid, "user"), (grid, "key")):
                if (known := await each.ask(AskMe())).proof != proof:
                    raise RuntimeError(f"the client is known by {known.proof}, not by {proof}")
                await _all(each, 5_000)
            for number in range(rounds):
                for entry, each in grids.items():
                    used, begun_at = _cpu_s(leaders[entry]), time.perf_counter()
                    await _all(each, jobs)
                    seconds = time.perf_counter() - begun_at
                    results.record(entry, "jobs", number, jobs_reading(jobs, seconds, _cpu_s(leaders[entry]) - used))


# Connections.


def _connections(results: Results, rounds: int, count: int, plain: tuple[int, str], secured: Secured) -> None:
    """Each says hello, waits for the welcome, and leaves."""
    pid, address = plain
    host, port = address.rsplit(":", 1)
    entry = secured.entry()
    assert entry.key is not None
    dials = {
        "uid": (pid, (host, int(port)), None, _hello("")),
        "keys": (secured.pid, secured.address, entry.context(), _hello(entry.key.text)),
    }
    for number in range(-1, rounds):
        for name, (leader, where, tls, hello) in dials.items():
            used, begun_at = _cpu_s(leader), time.perf_counter()
            for _ in range(count if number >= 0 else 20):
                _connect(where, tls, entry.server_hostname, hello)
            if number >= 0:
                seconds = time.perf_counter() - begun_at
                results.record(name, "connections", number, connections_reading(count, seconds, _cpu_s(leader) - used))


def _hello(key: str) -> bytes:
    hello = HelloClient("bench", 1, wants=list(WANTS_CLIENT), key=key)
    return fr.encode(fr.HELLO_CLIENT, subject="bench", payload=encode(hello))


def _connect(where: tuple[str, int], tls: ssl.SSLContext | None, name: str, hello: bytes) -> None:
    with ExitStack() as stack:
        sock = stack.enter_context(socket.create_connection(where, timeout=10))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # As clients do.
        if tls is not None:
            sock = stack.enter_context(tls.wrap_socket(sock, server_hostname=name))
        sock.sendall(hello)
        first = next(iter(fr.Decoder().feed(sock.recv(64 * 1024))))
        if first.type != fr.WELCOME:
            raise RuntimeError(f"the leader answered a hello with a frame of type {first.type}")


# Uploads.


def _uploads(results: Results, rounds: int, mib: int, secured: Secured) -> None:
    entry = secured.entry()
    assert entry.key is not None
    Path("ca.pem").write_text(entry.ca_pem)
    Path("header").touch(mode=0o600)
    Path("header").write_text(f"Authorization: {write_authorization(entry.key)}\n")
    big = random_file(Path("big.bin"), mib * MIB)
    place = HttpPlace(url_of(secured.address, entry), packs=False)
    with _bare() as bare:
        for number in range(-1, rounds):
            for name in ("bare", "curl", "client"):
                _change(big)
                ref = ref_of_file(big)
                if name == "client":
                    seconds = timed(lambda ref=ref: place.put(ref, big))  # type: ignore[misc]
                else:
                    url = bare if name == "bare" else f"https://{secured.address}/blobs/{ref.sha256}"
                    seconds = timed(lambda url=url: _curl(big, url))  # type: ignore[misc]
                if number >= 0:  # In the first, all that is imported late comes.
                    results.record(name, "uploads", number, {"mib_per_s": mib / seconds})
    big.unlink()


def _change(file: Path) -> None:
    """Other content: the leader has it not yet."""
    with file.open("r+b") as opened:
        opened.write(os.urandom(16))


def _curl(file: Path, url: str) -> None:
    """The key is in a file: a process list shows the arguments."""
    words = ["curl", "-sSf", "--cacert", "ca.pem" if "/blobs/" in url else "bare/ca.pem", "-H", "@header"]
    subprocess.run([*words, "-H", "Expect:", "-T", str(file), url], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _bare() -> Iterator[str]:
    AccessFolder.open(Path("bare").absolute(), "leader", ["127.0.0.1"])
    with running(sys.executable, str(HERE), "--bare", str(Path("bare").absolute()), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        yield f"https://127.0.0.1:{int(server.stdout.readline())}/upload"
        server.stdout.close()


def _serve_bare(folder: Path) -> None:
    """One request per connection: its body is decrypted and counted."""
    tls = AccessFolder.open(folder, "leader", ["127.0.0.1"]).context()()
    room = bytearray(256 * 1024)
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            with tls.wrap_socket(server.accept()[0], server_side=True) as peer:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += peer.recv(64 * 1024)
                head, _, body = head.partition(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                left = next(int(line[15:]) for line in lines if line.startswith(b"content-length:")) - len(body)
                while left and (got := peer.recv_into(room)):
                    left -= got
                peer.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


# Commands.


def _embedded(results: Results, rounds: int, before: Path | None) -> None:
    wakus = {"here": WAKU}
    if before is not None:
        wakus["before"] = (str(before / ".venv" / "bin" / "python"), "-m", "wakugumi")
    # Else a checkout that nobody has run would compile itself in each turn, and be the slower one.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    compiled["PYTHONPYCACHEPREFIX"] = str(Path("compiled").absolute())
    Path("inputs").mkdir()
    for name in "abcd":
        Path("inputs", name).touch()
    for number in range(-1, 2 * rounds):
        for word, words in COMMANDS.items():
            for name, waku in wakus.items():
                reading = _command([*waku, *words], compiled)
                shutil.rmtree("waku-out", ignore_errors=True)  # Else the next one finds its results.
                if number >= 0:  # The first compiles.
                    results.record(name, word, number, reading)


def _command(words: list[str], env: dict[str, str]) -> Answer:
    """Time, and CPU with all that the command started."""
    begun_at = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{words} ended with exit code {process.returncode}")
    return {"wall_ms": (time.perf_counter() - begun_at) * 1e3, "cpu_ms": (used.ru_utime + used.ru_stime) * 1e3}


if __name__ == "__main__":
    if sys.platform != "linux":
        raise SystemExit("CPU time is read from /proc")
    main()
