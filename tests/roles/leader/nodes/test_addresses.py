"""What may be said of a node on the command line, and what is made of it."""

from __future__ import annotations

import pytest

from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.net.address import Address
from wakugumi.app.settings import load
from wakugumi.errors import ConfigError
from wakugumi.roles.leader.nodes.addresses import read_nodes
from wakugumi.roles.leader.settings import LeaderSettings


@pytest.mark.spec("G1", "G4")
def test_a_node_is_a_url_and_what_follows_it() -> None:
    plain, full = read_nodes("http://a:5080/ https://b/base/,weight=3,subject=calcA,name=rack-1")
    assert (plain.url, plain.weight, plain.name, plain.patterns) == ("http://a:5080", 1, "", ("job.assign.>",))
    assert (full.url, full.weight, full.name) == ("https://b/base", 3, "rack-1")
    assert "job.assign.calca.rack-1" in full.patterns


def test_nodes_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKU_NODES", "http://a:1,weight=2  http://b:2")
    assert [(node.url, node.weight) for node in load(LeaderSettings).nodes] == [("http://a:1", 2), ("http://b:2", 1)]
    assert [node.url for node in load(LeaderSettings, {"nodes": ("http://c:3",)}).nodes] == ["http://c:3"]


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
        read_nodes(word)
    assert refused.value.hint


def test_no_node_is_there_twice() -> None:
    with pytest.raises(ConfigError, match="two nodes have the URL http://a"):
        read_nodes("http://a http://a/,weight=2")
    with pytest.raises(ConfigError, match="two nodes have the name x"):
        read_nodes("http://a,name=x http://b,name=x")


@pytest.mark.spec("O1")
def test_a_key_in_the_url_of_a_node_belongs_to_its_address_and_is_not_told() -> None:
    key = f"lead-1:{'a' * 32}-{'b' * 52}"
    (node,) = read_nodes(f"https://{key}@keyed.example:5080,weight=2")
    assert (node.url, node.weight) == ("https://keyed.example:5080", 2)
    assert AccessSources().key_name(Address("keyed.example", 5080)) == "lead-1"
    for wrong in (
        f"https://{key}@keyed.example:5080,colour=red",
        f"https://{key}@a",
        f"https://{key}x@a:1",
        f"ftp://{key}@a:1",
    ):
        with pytest.raises(ConfigError) as refused:
            read_nodes(wrong)
        assert "bbb" not in f"{refused.value} {refused.value.hint}"
