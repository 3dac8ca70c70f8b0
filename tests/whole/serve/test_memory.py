"""A leader with little memory says that it is full, instead of ending in the midst of its work."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
from tests.whole.conftest import WAKU, WITHIN_S

from wakugumi.limits.leader import ADDRESS_SPACE_MIN_BYTES
from wakugumi.limits.units import MIB
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import WANTS_CLIENT, HelloClient
from wakugumi.wire.messages.payload import encode

JOBS = 30_000


@pytest.mark.spec("L9")
def test_a_leader_whose_address_space_is_limited_refuses_jobs_before_it_is_used_up(home: Path) -> None:
    limit = (ADDRESS_SPACE_MIN_BYTES + 35 * MIB) // 1024
    words = ["sh", "-c", f'ulimit -v {limit}; exec "$0" "$@"', WAKU, "leader", "0", "--state", home / "state"]
    leader = subprocess.Popen(words, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert leader.stdout is not None
        host, port = leader.stdout.readline().strip().split(":")
        payload = encode({"ExecName": "a", "Args": ["x" * 1_000]})
        submits = b"".join(fr.encode(fr.SUBMIT_JOB, uuid4().bytes_le, payload=payload) for _ in range(JOBS))
        hello = encode(HelloClient("flood", 4, list(WANTS_CLIENT)))
        accepted = refused = 0
        with socket.create_connection((host, int(port)), timeout=WITHIN_S) as client:
            client.sendall(fr.encode(fr.HELLO_CLIENT, payload=hello) + submits)
            decoder = fr.Decoder()
            decoder.trust()
            while accepted + refused < JOBS:
                for frame in decoder.feed(client.recv(1 << 16)):
                    accepted += len(frame.payload) // 16 if frame.type == fr.RECEIPT else 0
                    refused += frame.type == fr.REFUSAL
        assert accepted > 10_000
        assert refused > 0
        assert leader.poll() is None
    finally:
        leader.terminate()
        _, err = leader.communicate(timeout=WITHIN_S)
    assert leader.returncode == 0, err
    assert "ulimit -v" in err
