"""What is in an input, and what is its key? Small files are read whole, large ones are known by their hash."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from wakugumi.app.work.map.inputs import Input
from wakugumi.app.work.map.keys import Keys
from wakugumi.errors import bad_request
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.roles.client.files.inputs import Cached, Content, InputContents


class InputReader:
    """Reads inputs of one map."""

    def __init__(self, keys: Keys, contents: InputContents) -> None:
        self._keys = keys
        self._contents = contents

    def read(self, source: Input) -> tuple[str, Content]:
        """The key and the content of an input. Waits for the disk. Raises Refused."""
        content = _content(source.path)
        if content is not None and len(content) <= INLINE_FILE_BYTES_MAX:
            return self._keys.key(source.out, content), content
        brought = self._contents.by_reference(source.name, Path(source.path))
        if content is None:
            return self._keys.key_by_sha256(source.out, brought.ref.sha256), brought
        if sha256(content).hexdigest() != brought.ref.sha256:
            raise bad_request(f"the input {source.path} was changed while it was read")
        return self._keys.key(source.out, content), brought


def common_files(files: Mapping[str, Content], contents: InputContents) -> Iterator[str]:
    """Names and digests of the common files for the key. NUL bytes keep them apart from arguments."""
    for name, content in sorted(files.items()):
        if isinstance(content, Cached):
            yield f"\0cached\0{name}\0{content.cache_id}"
        else:
            assert isinstance(content, Path)
            yield f"\0file\0{name}\0{contents.ref_of(content)[0].sha256}"


def _content(path: str) -> bytes | None:
    """None if it is larger than a frame or cannot be read; the caller handles both."""
    try:
        if os.stat(path).st_size > PAYLOAD_BYTES_MAX:
            return None
        with open(path, "rb") as file:
            data = file.read(PAYLOAD_BYTES_MAX + 1)
    except OSError:
        return None
    return data if len(data) <= PAYLOAD_BYTES_MAX else None
