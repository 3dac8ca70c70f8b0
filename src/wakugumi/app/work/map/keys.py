"""When is a result still good? When its key is the same: program, arguments, variables, the input's name and content.

A job's id is made of the key, the client and the program's name. Timeout, retries, subject and the like are not in it,
because they decide no answer (SPEC L6): the same map with another timeout attaches to the jobs that its leader has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from uuid import UUID

_VERSION = b"waku map 1"
_TIMEOUT_AND_SUBJECT = ("900.0", "")
_RETRIES = "0"


class Keys:
    """The keys of one map."""

    def __init__(self, program: bytes, args: Sequence[str], env: Mapping[str, str] = {}) -> None:
        """`program` identifies the program: a digest of its content, or its name if the workers have it."""
        self._base = sha256()
        words = [_bytes(arg) for arg in args]
        if env:  # A map without variables keeps the keys that it had.
            words += [b"\0env", *(_bytes(f"{name}={env[name]}") for name in sorted(env))]
        for part in (_VERSION, program, len(args).to_bytes(4, "big"), *words):
            self._base.update(len(part).to_bytes(8, "big"))
            self._base.update(part)

    def key(self, name: str, content: bytes) -> str:
        digest = self._base.copy()
        encoded = _bytes(name)
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
        digest.update(content)
        return digest.hexdigest()

    def key_by_sha256(self, name: str, content_sha256: str) -> str:
        """The key of an input whose content is too large for memory."""
        return self.key(name, b"\0sha256\0" + content_sha256.encode())


def job_id(key: str, *parts: object) -> str:
    """A UUID of version 8, which is for custom hashes."""
    text = "\0".join([key, *(str(part) for part in parts)])
    digest = bytearray(sha256(_bytes(text)).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(digest)))


def map_job_id(key: str, client_id: str, program: str, salt: str = "") -> str:
    """The id of a map's job. Earlier versions added timeout, subject and retries; a map without them has the same id as
    before, and goes on with their jobs. A `salt` makes new jobs."""
    return job_id(key, client_id, program, *_TIMEOUT_AND_SUBJECT, salt, _RETRIES)


def program_digest(path: str) -> bytes:
    """Identity of a program: a digest of its file."""
    digest = sha256()
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.digest()


def _bytes(text: str) -> bytes:
    """Also of a name that is no text."""
    return text.encode(errors="surrogateescape")
