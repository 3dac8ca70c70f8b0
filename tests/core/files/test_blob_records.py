"""Which facts are kept about a blob and the workers that have or want it?"""

from __future__ import annotations

from tests.kit.files_world import worker_id

from wakugumi.core.files.blob_records import BlobRecord, BlobRequest, FetchingWorker
from wakugumi.core.files.events import WorkerCame
from wakugumi.core.ids import ConnId


def test_a_workers_requests_are_found_by_number_and_by_content_until_they_are_removed() -> None:
    peer = FetchingWorker(WorkerCame(ConnId(1), worker_id(1), "", (), blobs=True))
    blob = BlobRecord("a")
    first, second = (BlobRequest(peer, number, blob, 1, here=True) for number in (b"1", b"2"))
    peer.add(first)
    peer.add(second)
    assert peer.wants == peer.wants_of["a"] == {b"1": first, b"2": second}
    peer.remove(first)
    assert peer.wants == peer.wants_of["a"] == {b"2": second}
    peer.remove(second)
    assert not peer.wants
    assert not peer.wants_of
