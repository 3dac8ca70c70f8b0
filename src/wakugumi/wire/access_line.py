"""How is a key written, and how is its secret kept out of texts? (SPEC O1)

    name:digest-secret                         a key
    waku://name:digest-secret@10.0.0.5:5000    where the leader is, whom to believe, who the caller is
    Authorization: Bearer name:digest-secret   HTTP; or Basic, with the name as user and digest-secret as password

The name is the key's only id in its grid. The digest begins the SHA-256 of the certificate of the grid's authority: a
caller shows its key only to a server that this authority has signed. The secret is 256 random bits. Both are lower-case
base32. A grid stores only the SHA-256 of a secret.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final, NamedTuple

from wakugumi.errors import ConfigError

SECRET_BYTES: Final = 32
DIGEST_BYTES: Final = 20
ACCESS_KEY_CHARS_MAX: Final = 32 + 1 + 32 + 1 + 52
"""Characters of the longest key."""
HIDDEN: Final = "…"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,31}")
_DIGEST: Final = re.compile(r"[a-z2-7]{32}")
_SECRET: Final = re.compile(r"[a-z2-7]{52}")
_USER_PART: Final = re.compile(r"[^\s/@,]*@")
_LONG_WORD: Final = re.compile(r"[A-Za-z2-7]{30,}")
"""A secret, also a cut one. Hashes and ids in hexadecimal have other digits, too."""
_KEY_WORD: Final = re.compile(r"([a-z2-7]{32})-[a-z2-7]{8,}|(?<![A-Za-z0-9])[a-z2-7]{52}(?![A-Za-z0-9])")
"""A key, also a cut one, or a whole secret alone."""
_HINT: Final = "copy the whole key: <name>:<digest>-<secret>"


class Key(NamedTuple):
    """A key. As text it shows no secret; `text` has all of it."""

    name: str
    digest: str
    """Of the grid's authority."""
    secret: str

    @property
    def text(self) -> str:
        """The whole key: only for a peer that proved its authority, or a file of mode 0600."""
        return f"{self.name}:{self.digest}-{self.secret}"

    def __repr__(self) -> str:
        return f"{self.name}:{HIDDEN}"


def parse_key(text: str) -> Key:
    """Raises ConfigError, which does not quote the text."""
    name, colon, rest = text.partition(":")
    digest, dash, secret = rest.partition("-")
    if not colon or not dash:
        raise ConfigError("the key has not the form <name>:<digest>-<secret>", _HINT)
    if not _NAME.fullmatch(name):
        raise ConfigError("the key's name is not one", "a name is 1 to 32 of a-z 0-9 _ . -, and begins with a-z 0-9")
    for part, form, what in ((digest, _DIGEST, "digest"), (secret, _SECRET, "secret")):
        if not form.fullmatch(part):
            raise ConfigError(f"the {what} of the key {name} is cut or misspelt", _HINT)
    return Key(name, digest, secret)


def is_key_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def secret_hash(key: Key) -> bytes:
    """SHA-256 of the secret: all that a grid stores of it."""
    return hashlib.sha256(key.secret.encode()).digest()


def base32(data: bytes) -> str:
    """As in a key: lower-case, without padding."""
    return base64.b32encode(data).decode().rstrip("=").lower()


def digest_of(certificate: bytes) -> str:
    """Digest in a key, of an authority's certificate (DER)."""
    return base32(hashlib.sha256(certificate).digest()[:DIGEST_BYTES])


def write_authorization(key: Key) -> str:
    """Value of the HTTP header."""
    return f"Bearer {key.text}"


def read_authorization(value: str) -> Key:
    """The key of an HTTP header Authorization, as Bearer or Basic. Raises ConfigError, which does not quote it."""
    scheme, _, rest = value.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "basic":
        try:
            rest = base64.b64decode(rest, validate=True).decode()
        except ValueError:
            raise ConfigError("the password of the request cannot be read", _HINT) from None
    elif scheme.lower() != "bearer":
        raise ConfigError("the request has an Authorization of another kind", "send Bearer, or Basic (curl -u)")
    return parse_key(rest)


def hide_secrets(text: str) -> str:
    """The text without the user part of addresses, and without long words as secrets are."""
    return _LONG_WORD.sub(HIDDEN, _USER_PART.sub(f"{HIDDEN}@", text))


def hide_keys(text: str) -> str:
    """The text without secrets of keys. Cheaper than `hide_secrets`, and all else stays: for every line of a log."""
    return _KEY_WORD.sub(_hidden, text)


def has_key(text: str) -> bool:
    return _KEY_WORD.search(text) is not None


def _hidden(found: re.Match[str]) -> str:
    return f"{found[1]}-{HIDDEN}" if found[1] else HIDDEN
