"""Gearman: its C job server and two of its C command-line workers, each starting `/bin/true` per job.

Takes part only where `gearmand` and `gearman` are installed. The client is the few packets of Gearman's binary protocol
that a job needs, written here, so that no client library slows it down.
"""

import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from contestant import Absent, Answer, Contestant, free_port, one_by_one, perform, running, wait_for_port

HEADER = struct.Struct(">4sII")
SUBMIT_JOB, JOB_CREATED, WORK_COMPLETE, WORK_DATA = 7, 8, 13, 28
WINDOW = 1000  # jobs in flight: enough to keep two workers busy, few enough for the socket's buffers


class Gearman(Contestant):
    def __init__(self, gearmand: str, port: int) -> None:
        told = subprocess.run([gearmand, "--version"], capture_output=True, text=True).stdout.split()
        self.versions = {"gearmand": told[1] if len(told) > 1 else "unknown"}
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._packets = self._socket.makefile("rb")

    def throughput(self, jobs: int) -> Answer:
        start = time.perf_counter()
        self._submit(min(WINDOW, jobs))
        for finished in range(1, jobs + 1):
            self._await_result()
            if finished + WINDOW <= jobs:
                self._submit(1)
        return {"jobs": jobs, "seconds": time.perf_counter() - start}

    def latency(self, jobs: int) -> Answer:
        def run_one() -> None:
            self._submit(1)
            self._await_result()

        return one_by_one(run_one, jobs)

    def close(self) -> None:
        self._packets.close()
        self._socket.close()

    def _submit(self, jobs: int) -> None:
        body = b"true\0\0"  # function, no unique id, no workload
        self._socket.sendall((HEADER.pack(b"\0REQ", SUBMIT_JOB, len(body)) + body) * jobs)

    def _await_result(self) -> None:
        while True:
            _, kind, length = HEADER.unpack(self._packets.read(HEADER.size))
            self._packets.read(length)
            if kind == WORK_COMPLETE:
                return
            if kind not in (JOB_CREATED, WORK_DATA):
                raise RuntimeError(f"gearmand answered with packet {kind}")


@contextmanager
def opened() -> Iterator[Gearman]:
    gearmand, gearman = shutil.which("gearmand"), shutil.which("gearman")
    if gearmand is None or gearman is None:
        raise Absent("not installed: gearmand and gearman are not on PATH")
    port = free_port()
    with ExitStack() as stack:
        server = stack.enter_context(running(gearmand, "--listen", "127.0.0.1", "--port", str(port), "-l", "stderr"))
        wait_for_port(port, server)
        for _ in range(2):
            stack.enter_context(running(gearman, "-w", "-h", "127.0.0.1", "-p", str(port), "-f", "true", "/bin/true"))
        contestant = Gearman(gearmand, port)
        stack.callback(contestant.close)
        contestant.throughput(200)
        yield contestant


if __name__ == "__main__":
    perform(opened())
