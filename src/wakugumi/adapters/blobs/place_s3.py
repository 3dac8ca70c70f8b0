"""How are blobs stored in an object store? As `<prefix>/<sha256>` in a bucket, in pieces both ways, by obstore.

Credentials, region and the address of a store other than Amazon's come from the environment (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL …). Without keys there, the usual file is read (~/.aws/credentials,
or AWS_SHARED_CREDENTIALS_FILE; AWS_PROFILE). An object is complete or absent: an upload in parts becomes visible with
its last part, which is sent only after all of the content was verified.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from configparser import ConfigParser, ParsingError
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from wakugumi.adapters.blobs.store import Incoming
from wakugumi.adapters.files import READ
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.references import BlobRef

if TYPE_CHECKING:
    from wakugumi.adapters.blobs.place import OnBytes

_PART_BYTES: Final = 8 * MIB
"""Size of a part: large enough for its round trip; S3 requires at least 5 MiB."""
_PARTS_MAX: Final = 10_000
"""Most parts of one object in S3: larger objects have larger parts."""
_PARTS_AT_ONCE: Final = 2
_FILE: Final = "AWS_SHARED_CREDENTIALS_FILE"
_OTHER_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")
"""With one of these variables the file is not read."""
_FIELDS: Final = ("access_key_id", "secret_access_key", "session_token")


class S3Place:
    """A bucket, or a prefix in one. Raises ConfigError."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
            raise ConfigError(f"{url!r} is no place for blobs", "write s3://bucket/prefix")
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError:
            raise ConfigError(
                "s3:// needs obstore, which is not installed", "install it with `pip install wakugumi[s3]`"
            ) from None
        self.url = url
        self._obstore: Any = obstore
        address = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
        options: Any = {"connect_timeout": "10s", "timeout": "120s", "allow_http": address.startswith("http://")}
        try:
            prefix = unquote(parts.path).strip("/")
            self._store: Any = S3Store(parts.netloc, prefix=prefix or None, client_options=options, **_keys_of_file())
        except ConfigError:
            raise
        except Exception as error:  # The builder's exceptions are not documented.
            raise ConfigError(f"{url!r} cannot be used: {error}") from None

    def has(self, ref: BlobRef) -> bool:
        try:
            with self._translated():
                return int(self._obstore.head(self._store, ref.sha256)["size"]) == ref.size
        except Refused as error:
            if error.code != "no-blob":
                raise
            return False

    def link(self, _ref: BlobRef, _source: Path) -> None:
        """Does nothing: the store is elsewhere."""

    def put(self, ref: BlobRef, source: Path, on_bytes: OnBytes = lambda _: None) -> None:
        if self.has(ref):
            on_bytes(ref.size)
            return
        part_bytes = max(_PART_BYTES, -(-ref.size // _PARTS_MAX))
        pieces = _verified(ref, source, part_bytes, on_bytes)
        with self._translated():
            self._obstore.put(
                self._store,
                ref.sha256,
                b"".join(pieces) if ref.size <= part_bytes else pieces,
                use_multipart=ref.size > part_bytes,
                chunk_size=part_bytes,
                max_concurrency=_PARTS_AT_ONCE,
            )

    def fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes = lambda _: None) -> None:
        try:
            while into.at < ref.size:
                count = min(_PART_BYTES, ref.size - into.at)
                with self._translated():
                    piece = memoryview(self._obstore.get_range(self._store, ref.sha256, start=into.at, length=count))
                into.write(piece)
                on_bytes(len(piece))
            into.finish()
        finally:
            into.close()

    def remove(self, sha256: str) -> None:
        with self._translated():
            self._obstore.delete(self._store, sha256)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        known = self._obstore.exceptions
        try:
            yield
        except (FileNotFoundError, known.NotFoundError):
            raise Refused("no-blob", f"the blob is not in {self.url}") from None
        except (PermissionError, known.PermissionDeniedError, known.UnauthenticatedError) as error:
            raise Refused("denied", f"{self.url} denies access: {_line(error)}", "check AWS_ACCESS_KEY_ID") from None
        except (OSError, ValueError, known.BaseError) as error:
            raise Lost(f"{self.url} does not answer: {_line(error)}", "dead") from None


def _verified(ref: BlobRef, source: Path, part_bytes: int, on_bytes: OnBytes) -> Iterator[bytes]:
    """A file in parts; the last one is yielded only if all of the content has its hash. Raises Refused."""
    digest = hashlib.sha256()
    at = 0
    try:
        with open(os.open(source, READ), "rb", buffering=0) as file:
            while True:
                piece = file.read(min(part_bytes, ref.size - at))
                at += len(piece)
                digest.update(piece)
                if (not piece and at < ref.size) or (at == ref.size and file.read(1)):
                    break
                if at == ref.size:
                    if digest.hexdigest() == ref.sha256:
                        yield piece
                        on_bytes(len(piece))
                        return
                    break
                yield piece
                on_bytes(len(piece))
    except OSError as error:
        raise Refused("bad-request", f"{source} cannot be read: {error.strerror}", hint="") from None
    raise Refused("bad-request", f"{source} is not what it was", hint="leave it alone while it is sent")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _keys_of_file() -> dict[str, Any]:
    """The keys in the usual file; empty if the environment has keys, or without the file. Raises ConfigError."""
    if any(os.environ.get(name) for name in _OTHER_KEYS):
        return {}
    named, profile = os.environ.get(_FILE), os.environ.get("AWS_PROFILE")
    path = Path(named or "~/.aws/credentials").expanduser()
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
        found = parser[profile or "default"]
    except (OSError, ValueError, ParsingError, KeyError) as error:
        if not named and not profile:
            return {}
        why = f"has no profile {profile or 'default'!r}" if isinstance(error, KeyError) else "cannot be read"
        raise ConfigError(f"the credentials file {path} {why}", f"see {_FILE}") from None
    return {name: value for name in _FIELDS if (value := found.get(f"aws_{name}"))}
