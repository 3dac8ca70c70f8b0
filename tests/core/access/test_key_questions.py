"""Questions about keys: as JSON of a frame."""

from __future__ import annotations

from wakugumi.core.access.identity import Role, Rules
from wakugumi.core.access.key_questions import AskKeys, AskMakeKey, AskRevokeKey, KeyRow, MadeKey
from wakugumi.wire.messages.control import read_question


def test_questions_about_keys_are_read_from_json() -> None:
    assert read_question(b'{"ask":"keys"}') == AskKeys()
    assert read_question(b'{"ask":"revoke-key","name":"a"}') == AskRevokeKey("a")
    question = b'{"ask":"make-key","name":"a","role":"worker","rules":{"subjects":["risk"]},"expires_s":60}'
    assert read_question(question) == AskMakeKey("a", Role.WORKER, Rules(subjects=("risk",)), 60)


def test_a_made_key_shows_no_secret_as_text() -> None:
    row = KeyRow("a", Role.CLIENT, Rules(), "valid", 0, 0.0)
    assert "secret" not in repr(MadeKey(row, "a:digest-secret", ["10.0.0.5"]))
