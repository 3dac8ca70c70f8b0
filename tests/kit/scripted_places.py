"""Places for blobs that give what a test says, or fail."""

from __future__ import annotations

from wakugumi.adapters.blobs.place import OnBytes
from wakugumi.adapters.blobs.store import Incoming
from wakugumi.wire.messages.references import BlobRef


class ScriptedPlace:
    """A place that does what a test likes, for the tries it was made for."""

    def __init__(self, url: str, content: bytes, ends: list[Exception | None]) -> None:
        self.url = url
        self.content = content
        self.ends = ends
        self.began_at: list[int] = []

    def fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes = lambda _: None) -> None:
        self.began_at.append(into.at)
        try:
            data = self.content[into.at :]
            end = self.ends.pop(0)
            if end is not None:
                into.write(data[: len(data) // 2])
                raise end
            into.write(data)
            on_bytes(len(data))
            into.finish()
        finally:
            into.close()
