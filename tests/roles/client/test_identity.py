"""The name of a client."""

from __future__ import annotations

import os

import pytest

from wakugumi.errors import ConfigError
from wakugumi.limits.wire import CLIENT_ID_CHARS_MAX
from wakugumi.roles.client.identity import check_client_id, default_client_id


def test_the_client_id_is_the_same_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_CLIENT_ID", "desk-1")
    assert default_client_id() == "desk-1"
    monkeypatch.delenv("WAKU_CLIENT_ID")
    monkeypatch.setenv("LOGNAME", "someone")
    assert default_client_id() == f"someone@{os.uname().nodename}"[:128]


@pytest.mark.spec("O1")
@pytest.mark.parametrize(("key", "before"), [("", ""), ("admin", ""), ("client", ""), ("desk-1", "desk-1.")])
def test_an_own_key_stands_before_the_name(monkeypatch: pytest.MonkeyPatch, key: str, before: str) -> None:
    monkeypatch.setenv("LOGNAME", "someone")
    monkeypatch.delenv("WAKU_CLIENT_ID", raising=False)
    assert default_client_id(key) == f"{before}someone@{os.uname().nodename}"
    monkeypatch.setenv("WAKU_CLIENT_ID", "said")
    assert default_client_id(key) == "said"


def test_a_user_without_a_name_is_a_client_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WAKU_CLIENT_ID", "LOGNAME", "USER", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert default_client_id().startswith("uid4000000@")


def test_a_name_that_is_made_here_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAKU_CLIENT_ID", raising=False)
    monkeypatch.setenv("LOGNAME", "some\none" + "x" * 200)
    check_client_id(default_client_id())


@pytest.mark.parametrize("name", ["", "a\nb", "x" * (CLIENT_ID_CHARS_MAX + 1)])
def test_a_name_that_cannot_be_printed_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="a client id is 1 to"):
        check_client_id(name)
