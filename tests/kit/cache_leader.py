"""A leader in a thread that keeps caches, for the commands."""

from __future__ import annotations

from tests.kit.answering_leader import AnsweringLeader

from wakugumi.wire import frame as fr
from wakugumi.wire.messages.cache import CachePutResult
from wakugumi.wire.messages.payload import encode


class Keeps(AnsweringLeader):
    """A leader that answers every put as it was told to, after a word on how far it is."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[fr.Frame] = []
        self.jobs: list[fr.Frame] = []
        self.result = CachePutResult("data-1", "OK", "all have it", sent=3, ok=2, skipped=1)

    def _reply(self, frame: fr.Frame) -> bytes:
        if frame.type == fr.SUBMIT_JOB:
            self.jobs.append(frame)
        if frame.type != fr.CACHE_PUT:
            return super()._reply(frame)
        self.puts.append(frame)
        progress = CachePutResult("data-1", "PROGRESS", "", sent=3, ok=1, waiting=2)
        return b"".join(
            fr.encode(fr.CACHE_ACK, corr_id=frame.msg_id, payload=encode(each)) for each in (progress, self.result)
        )
