"""`waku link`: stdout is the link alone, by https where the leader says so."""

from __future__ import annotations

import json

import pytest
from tests.kit.answering_leader import AnsweringLeader

from wakugumi.app.cli import call
from wakugumi.core.access.browser_links import AskLink, BrowserLink
from wakugumi.errors import EXIT_USAGE

pytestmark = pytest.mark.spec("O1")


@pytest.mark.parametrize(("is_tls", "scheme"), [(True, "https"), (False, "http")])
def test_the_link_alone_is_on_stdout(
    leader: AnsweringLeader, capsys: pytest.CaptureFixture[str], is_tls: bool, scheme: str
) -> None:
    leader.answer = BrowserLink("abc234", 60.0, is_tls)
    assert call(["link"]) == 0
    said = capsys.readouterr()
    url = f"{scheme}://{leader.address}/in/abc234"
    assert said.out == f"{url}\n"
    assert "valid once, for 1 min" in said.err
    assert "abc234" not in said.err
    assert leader.asked == [AskLink()]
    assert call(["link", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"link": url, "valid_s": 60.0}


def test_a_link_is_for_one_leader(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["link", "--leader", "a:1,b:2"]) == EXIT_USAGE
    assert "several are named" in capsys.readouterr().err
