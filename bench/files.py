"""How fast do large files travel, with how much memory, and who pays for the copies? (SPEC C3, C5, C7, C8)

    make bench-files                                   all of it: 4 GiB there and back, 1 GiB to eight workers
    .venv/bin/python bench/files.py --bulk-mib 256 --cache-mib 64      the same with less, shown and not written down

Real leaders, workers and clients over loopback, on a real disk (`.bench`). A transfer is compared with `cp` and
`sha256sum` of the same file in the same run, spreading with one worker alone. Memory is the growth of each process's
own pages, by its highest mark since the transfer began. The thousand workers are simulated: see `spread.py`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import spread
import wakugumi
from contestant import running
from environment import disk, machine
from growth import MIB, growth, random_file, shell_program, timed, tree
from processes import WAKU, end, start_leader
from report import markdown_table
from wakugumi.core.leader.answer_records import CachesAnswer
from wakugumi.core.leader.questions import AskCaches, AskStatus

PATIENCE_S = 60.0
WORKERS = 8
SETUP_JOBS = 200
SETUP_MIB = 100
HEADER = ("what", "measured", "goal", "verdict")
DOCUMENT = Path(__file__).absolute().parents[1] / "docs" / "internals" / "benchmarks-files.md"
INTRODUCTION = """# Large files

Real leaders, workers and clients over loopback, on a real disk. A transfer is compared with `cp` and `sha256sum` of the
same file in the same run, spreading with one worker alone, a cached file with no file at all. Memory is the largest
growth of each process's own pages during the transfer. The thousand workers are simulated: the leader's real decisions
under virtual time, with links of 10 Gbit/s each way (`bench/spread.py` lists the parts of the model).
How files travel: [Files](../use/files.md); caches: [Caches](../use/caches.md).
Made by `make bench-files`, and kept whatever the result.
"""

rows: list[tuple[str, str, str, str]] = []


def main() -> None:
    parser = argparse.ArgumentParser(description="Large files: speed, memory, and who pays for the copies.")
    parser.add_argument("--bulk-mib", type=int, default=4096, help="of the file that goes there and back")
    parser.add_argument("--cache-mib", type=int, default=1024, help="of the cache that is put on eight workers")
    parser.add_argument("--only", choices=["bulk", "cache", "setup", "thousand"], action="append")
    parser.add_argument("--write", action="store_true", help=f"write docs/internals/{DOCUMENT.name}")
    asked = parser.parse_args()
    about = machine(sorted(os.sched_getaffinity(0)))
    place = Path(__file__).absolute().parents[1] / ".bench"
    place.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="files-", dir=place))
    os.chdir(folder)
    try:
        about |= disk(folder)
        for name, measure in (("bulk", _bulk), ("cache", _cache), ("setup", _setup), ("thousand", _thousand)):
            if not asked.only or name in asked.only:
                measure(asked)
        if asked.write:
            about["Made"] = f"{time.strftime('%Y-%m-%d')}, by `make bench-files`"
            tables = markdown_table(HEADER, rows), markdown_table(("what", "value"), about.items())
            DOCUMENT.write_text(f"{INTRODUCTION}\n{tables[0]}\n\n## The machine\n\n{tables[1]}\n")
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def _row(what: str, measured: str, goal: str, met: bool) -> None:
    rows.append((what, measured, goal, "met" if met else "NOT MET"))
    print("; ".join(rows[-1]), flush=True)


# There and back.


def _bulk(asked: argparse.Namespace) -> None:
    size = asked.bulk_mib * MIB
    big = random_file(Path("big.bin"), size)
    (programs := Path("programs")).mkdir(exist_ok=True)
    shell_program(programs / "nothing", "exit 0")
    shell_program(programs / "make", f'cat "{big.absolute()}" > made.bin')
    with _grid(programs, 1) as (leader, address, workers):
        plain_s = timed(lambda: _copy_and_sum(big))
        marks = {"leader": [leader.pid], "worker": [pid for worker in workers for pid in tree(worker.pid)]}
        with wakugumi.Client(address, client_id="bench") as client:
            client.run("nothing").check()  # All that is imported late is there now.
            _warm(client)
            with growth({**marks, "client": [os.getpid()]}) as grown:
                there_s = timed(lambda: client.run("nothing", files={"big.bin": big}).check())
            _tell("input", asked.bulk_mib, plain_s, there_s, grown)
            with growth({**marks, "client": [os.getpid()]}) as grown:
                begun_at = time.perf_counter()
                result = client.run("make").check()
                result.extract("out")
                back_s = time.perf_counter() - begun_at - (result.run_s or 0.0)
            _tell("result", asked.bulk_mib, plain_s, back_s, grown)
        assert subprocess.run(["cmp", big, "out/made.bin"]).returncode == 0
    shutil.rmtree("out")
    big.unlink()


def _tell(what: str, mib: int, plain_s: float, ours_s: float, grown: dict[str, float]) -> None:
    ratio = plain_s / ours_s
    told = f"{ratio:.2f} × ({ours_s:.1f} s; `cp` and `sha256sum` {plain_s:.1f} s)"
    _row(f"{mib} MiB {what}, end to end, against `cp` + `sha256sum`", told, "≥ 0.35 ×", ratio >= 0.35)
    each = ", ".join(f"{name} {mib:.0f}" for name, mib in grown.items())
    _row(f"memory growth meanwhile, {what}", f"{each} MiB", "≤ 64 MiB each", max(grown.values()) <= 64)


def _copy_and_sum(big: Path) -> None:
    subprocess.run(["cp", big, "copy.bin"], check=True)
    subprocess.run(["sha256sum", big], check=True, stdout=subprocess.DEVNULL)
    Path("copy.bin").unlink()


def _warm(client: wakugumi.Client) -> None:
    """One small blob there and back: what is loaded late belongs to no transfer."""
    Path("warm.bin").write_bytes(os.urandom(MIB))
    client.run("nothing", files={"warm.bin": Path("warm.bin")}).check()


# To eight workers.


def _cache(asked: argparse.Namespace) -> None:
    size = asked.cache_mib * MIB
    data = random_file(Path("data.bin"), size)
    (programs := Path("programs")).mkdir(exist_ok=True)
    with _grid(programs, 1) as (_, address, _workers), wakugumi.Client(address, client_id="bench") as client:
        alone_s = timed(lambda: _put(client, data, 1))
    with _grid(programs, WORKERS) as (_, address, _workers), wakugumi.Client(address, client_id="bench") as client:
        all_s = timed(lambda: _put(client, data, WORKERS))
        sent = _sent(client)
        again_s = timed(lambda: _put(client, data, 0))
        sent_again = _sent(client) - sent
        for folder in Path().glob("cache-*"):
            assert subprocess.run(["cmp", data, folder / "data-v1" / "data.bin"]).returncode == 0
    what = f"{asked.cache_mib} MiB cache to {WORKERS} workers"
    _row(f"{what}: sent by the leader", f"{sent / size:.2f} copies", "≤ 2.2 copies", sent <= 2.2 * size)
    told = f"{all_s / alone_s:.1f} × ({all_s:.1f} s; one {alone_s:.1f} s)"
    _row(f"{what}: time, against one worker", told, "≤ 6 ×", all_s <= 6 * alone_s)
    told = f"{again_s:.2f} s, {sent_again} bytes sent"
    _row("the same put again", told, "≤ 1 s, nothing sent", again_s <= 1 and not sent_again)
    data.unlink()


def _put(client: wakugumi.Client, data: Path, ok: int) -> None:
    summary = client.put_cache("data-v1", {"data.bin": data}, within_s=600)
    assert summary.ok == ok, summary
    assert not summary.failed, summary


def _sent(client: wakugumi.Client) -> int:
    """All that left the leader's store for workers."""
    answer = client.ask(AskCaches(1))
    assert isinstance(answer, CachesAnswer)
    return answer.blobs.leader_sent_bytes


# What a cached file costs a job.


def _setup(_asked: argparse.Namespace) -> None:
    data = random_file(Path("data.bin"), SETUP_MIB * MIB)
    (programs := Path("programs")).mkdir(exist_ok=True)
    shell_program(programs / "nothing", "exit 0")
    cached = {"data.bin": wakugumi.Cached("data-v1")}
    with _grid(programs, 1) as (_, address, _workers), wakugumi.Client(address, client_id="bench") as client:
        _put(client, data, 1)
        plain: list[float] = []
        linked: list[float] = []
        for _ in range(SETUP_JOBS):
            plain.append(timed(lambda: client.run("nothing").check()))
            linked.append(timed(lambda: client.run("nothing", files=cached).check()))
    more_ms = (median(linked) - median(plain)) * 1000
    told = f"{more_ms:+.2f} ms ({median(linked) * 1000:.2f}; without {median(plain) * 1000:.2f})"
    _row(f"a job that names a {SETUP_MIB} MiB cached file, one by one, median", told, "≤ 1 ms more", more_ms <= 1)
    data.unlink()


# A thousand workers, simulated.


def _thousand(_asked: argparse.Namespace) -> None:
    for share in (0.0, 0.05):
        it = spread.simulate(1_000, size=1024 * MIB, dying_share=share, seed=1, uploads_max=1)
        what = f"simulated: 1 GiB to 1 000 workers{f', {it.dead} of them dying on the way' if it.dead else ''}"
        _row(f"{what}: time, against one copy", f"{it.times:.1f} ×", "≤ 15 ×", it.times <= 15)
        _row(f"{what}: the leader's share of the bytes", f"{it.leader_share:.2%}", "≤ 1 %", it.leader_share <= 0.01)


# Processes and files.


@contextmanager
def _grid(
    programs: Path, workers: int
) -> Iterator[tuple["subprocess.Popen[str]", str, list["subprocess.Popen[bytes]"]]]:
    with ExitStack() as stack:
        stack.callback(_clear)
        leader, address = start_leader("0", "--state", "state", "--log-level", "warning")
        stack.callback(end, leader)
        host, port = address.rsplit(":", 1)
        begun = []
        for number in range(workers):
            folders = ("--programs", str(programs), "--jobs", f"jobs-{number}", "--cache", f"cache-{number}")
            taking = ("--slots", "2", "--cpu-cap", "0.95", "--name", f"w{number}", "--log-level", "warning")
            begun.append(stack.enter_context(running(*WAKU, "worker", host, port, *folders, *taking)))
        until = time.monotonic() + PATIENCE_S
        with wakugumi.Client(address, client_id="watcher") as client:
            while client.ask(AskStatus()).slots_free < 2 * workers:
                if time.monotonic() > until:
                    raise RuntimeError("the workers did not come in time")
                time.sleep(0.05)
        yield leader, address, begun


def _clear() -> None:
    for folder in (Path("state"), *Path().glob("jobs-*"), *Path().glob("cache-*")):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if sys.platform != "linux":
        raise SystemExit("memory is read from /proc")
    main()
