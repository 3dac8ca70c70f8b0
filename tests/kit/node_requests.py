"""A job for a node, as a line and as an HTTP request."""

from __future__ import annotations

from tests.kit.a_node import post
from tests.kit.form import form

from wakugumi.wire.access_line import Key


def line(job: str, content: bytes = b"hello", name: str = "in.txt", key: Key | None = None) -> bytes:
    auth = b"" if key is None else f"AUTH {key.text}\n".encode()
    return auth + f"JOB {job} {name} {len(content)}\n".encode() + content


def run(job: str, content: bytes = b"hello", query: str = "", *lines: str) -> bytes:
    return post(f"/run/{job}{query}", form(content), *lines)
