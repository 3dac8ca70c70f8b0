"""What may be said of a node on the command line, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.app.serve.node_addresses import NodeSettings, node_settings, node_words, nodes_of
from wakugumi.errors import ConfigError
from wakugumi.roles.leader.leader import Leader


@pytest.mark.spec("G1", "G4")
def test_a_node_is_a_url_and_what_follows_it() -> None:
    plain, full = node_words(("http://a:5080/", "https://b/base/,weight=3,subject=calcA,name=rack-1"))
    assert (plain.url, plain.weight, plain.name, plain.patterns) == ("http://a:5080", 1, "", ("job.assign.>",))
    assert (full.url, full.weight, full.name) == ("https://b/base", 3, "rack-1")
    assert "job.assign.calca.rack-1" in full.patterns


def test_nodes_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_NODES", "http://a:1,weight=2  http://b:2")
    assert [(node.url, node.weight) for node in node_words(())] == [("http://a:1", 2), ("http://b:2", 1)]
    assert [node.url for node in node_words(("http://c:3",))] == ["http://c:3"]


@pytest.mark.parametrize(
    "word",
    [
        *("a:5080", "ftp://a", "http://", "http://a:0", "http://a:99999", "http://a?x=1", "http://a#b", "http://u@a"),
        *("http://a,weight=0", "http://a,weight=101", "http://a,weight=x", "http://a,weight=-1", "http://a,weight=²"),
        *("http://a,subject=a..b", "http://a,colour=red", "http://a,weight", "http://a,name=x,name=y", "http://[a"),
        *("http://a,name=" + "x" * 65, "http://a,weight=00000000199999", "http://a..b:80"),
    ],
)
def test_what_is_no_node_is_told_with_a_hint(word: str) -> None:
    with pytest.raises(ConfigError) as refused:
        node_words((word,))
    assert refused.value.hint


def test_no_node_is_there_twice() -> None:
    with pytest.raises(ConfigError, match="two nodes have the URL http://a"):
        node_words(("http://a", "http://a/,weight=2"))
    with pytest.raises(ConfigError, match="two nodes have the name x"):
        node_words(("http://a,name=x", "http://b,name=x"))


def test_a_key_without_its_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="no certificate"):
        node_settings((), None, None, "key.pem")


@pytest.mark.spec("N5")
@pytest.mark.anyio
async def test_certificates_that_cannot_be_read_are_told_before_anything_runs(tmp_path: Path) -> None:
    leader = Leader()
    try:
        settings = NodeSettings(node_words(("https://a",)), ca=str(tmp_path / "none.pem"))
        with pytest.raises(ConfigError, match=r"none\.pem"):
            async with nodes_of(leader, settings):
                pass
    finally:
        await leader.close()
