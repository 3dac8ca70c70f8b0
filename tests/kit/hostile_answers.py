"""Answers that no honest group or node gives: whole HTTP messages, as bytes."""

from __future__ import annotations

import gzip
import json

DEEP = b'{"x":' + b"[" * 50_000
"""JSON nested so deep that a decoder gives up in its own way."""

BODIES: dict[str, bytes] = {
    "deep": DEEP,
    "deep-code": b'{"code":' + b'{"a":' * 10_000,
    "deep-whole": b'{"running":0,"limit":8,"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "long-number": b'{"running":' + b"9" * 20_000 + b',"limit":8,"code":' + b"9" * 20_000 + b"}",
    "huge-number": b'{"running":1e999,"limit":-1e999,"code":1e999}',
    "large-number": b'{"running":0,"limit":9223372036854775807,"queued":18446744073709551615}',
    "negative": b'{"running":-1,"limit":-5,"queued":-1,"free":-9}',
    "wrong-types": b'{"running":"0","limit":[8],"code":{"a":1},"detail":[],"hint":0}',
    "list": b"[1,2,3]",
    "null": b"null",
    "nothing": b"",
    "no-utf8": b'{"code":"\xff\xfe","detail":"\xc3\x28","running":0,"limit":8}',
    "half-character": rb'{"code":"busy","detail":"\ud800","running":0,"limit":8}',
    "control": json.dumps({"code": "busy", "detail": "\x00\x1b[2J\r\nX-Evil: 1", "running": 0, "limit": 8}).encode(),
    "long-detail": json.dumps({"code": "busy", "detail": "x" * 60_000, "hint": "y" * 4_000}).encode(),
    "same-keys": b'{"code":"full","code":"busy","running":1,"running":2,"limit":8}',
    "not-json": b"<html>it works</html>",
    "bom": b'\xef\xbb\xbf{"running":0,"limit":8}',
    "short-gzip": gzip.compress(b'{"running":0,"limit":8}' * 100)[:30],
}

HEADS: dict[str, bytes] = {
    "plain": b"",
    "gzip": b"Content-Encoding: gzip\r\n",
    "unknown-coding": b"Content-Encoding: no-such\r\n",
    "retry-far": b"Retry-After: " + b"9" * 4_000 + b"\r\n",
    "retry-nan": b"Retry-After: nan\r\n",
    "exit-code": "Waku-Status: OK\r\nWaku-Exit-Code: \u00b2\r\n".encode(),
    "exit-code-signs": b"Waku-Status: FAILED\r\nWaku-Exit-Code: --5\r\n",
    "exit-code-long": b"Waku-Status: OK\r\nWaku-Exit-Code: " + b"7" * 5_000 + b"\r\n",
    "odd-bytes": b"Waku-Status: OK\r\nWaku-Worker: \xff\xfe\x80\r\nWaku-Reason: \x80\r\nContent-Type: \xff/\xff\r\n",
    "odd-type": b"Content-Type: ; ;;==\r\nContent-Disposition: \xe2\x80\xa8\r\n",
}


def message(status: bytes, head: bytes, body: bytes, length: int | None = None) -> bytes:
    said = str(len(body) if length is None else length).encode()
    return b"HTTP/1.1 " + status + b"\r\n" + head + b"Content-Length: " + said + b"\r\n\r\n" + body


def answers(status: bytes) -> dict[str, bytes]:
    """All of them with this status."""
    made = {f"{name}-body": message(status, b"", body) for name, body in BODIES.items()}
    made |= {f"{name}-head": message(status, head, b'{"code":"worker-error"}') for name, head in HEADS.items()}
    first = b"HTTP/1.1 " + status + b"\r\n"
    return made | {
        "too-long": message(status, b"", b"{}", 1_000),
        "too-short": message(status, b"", b'{"running":0,"limit":8}', 3),
        "negative-length": message(status, b"", b"{}", -5),
        "two-lengths": message(status, b"Content-Length: 7\r\n", b"{}"),
        "length-of-20-digits": message(status, b"", b"{}", 10**20),
        "length-no-number": first + b"Content-Length: many\r\n\r\n{}",
        "chunks-broken": first + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "chunks-cut": first + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{}",
        "chunks-and-length": first + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "long-head": first + b"X: " + b"x" * 100_000 + b"\r\n\r\n",
        "many-heads": first + b"X: y\r\n" * 5_000 + b"\r\n",
        "head-cut": first + b"Content-Le",
        "head-no-colon": first + b"nothing here\r\n\r\n{}",
        "no-length": first + b"\r\n{}",
    }


ODD: dict[str, bytes] = {
    "not-http": b"220 smtp.example ready\r\n",
    "zeros": bytes(1_000),
    "status-0": message(b"000 X", b"", b"{}"),
    "status-99": message(b"99 X", b"", b"{}"),
    "status-1000": message(b"1000 X", b"", b"{}"),
    "status-word": message(b"OK OK", b"", b"{}"),
    "status-101": b"HTTP/1.1 101 X\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n",
    "status-204": b"HTTP/1.1 204 X\r\n\r\n",
    "status-304": b"HTTP/1.1 304 X\r\n\r\n",
    "status-302": message(b"302 X", b"Location: http://127.0.0.1:1/\r\n", b""),
    "version-9": b"HTTP/9.9 200 X\r\nContent-Length: 2\r\n\r\n{}",
    "version-2": b"HTTP/2 200 X\r\nContent-Length: 2\r\n\r\n{}",
    "nothing": b"",
}
"""What is hardly HTTP, or no answer."""
