"""Which values of a leader's settings are accepted?"""

from __future__ import annotations

import pytest

from wakugumi.core.backoff import Policies
from wakugumi.core.setting import options_of
from wakugumi.errors import ConfigError
from wakugumi.limits.leader import CLIENT_CAP_MAX
from wakugumi.roles.leader.settings import LEADER, LeaderSettings

OPTIONS = options_of(LeaderSettings)


def read(field: str, text: str) -> object:
    return OPTIONS[field].of_text(text, f"WAKU_{field.upper()}")


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("blobs", "file:///shared", "file:///shared"),
        ("blobs", "s3://bucket/prefix", "s3://bucket/prefix"),
        ("blob_bytes", "500GB", 500 * 10**9),
        ("workers_at", "10.1.*.*  *.example", ("10.1.*.*", "*.example")),
        ("program", "calcA", "calcA"),
        ("http_cap", str(CLIENT_CAP_MAX), CLIENT_CAP_MAX),
        ("memory", "yes", True),
    ],
)
def test_a_value_is_read_from_its_text(field: str, text: str, value: object) -> None:
    assert read(field, text) == value


def test_nodes_and_policies_are_read_by_their_own_readers() -> None:
    nodes = read("nodes", "http://a:1,weight=2 http://b:2,name=rack")
    assert isinstance(nodes, tuple)
    assert [(node.url, node.weight, node.name) for node in nodes] == [("http://a:1", 2, ""), ("http://b:2", 1, "rack")]
    policies = read("policies", "calc.*=sticky,round-robin")
    assert isinstance(policies, Policies)
    assert policies.rankings != LEADER.policies.rankings


@pytest.mark.parametrize(
    ("field", "text", "told"),
    [
        ("blobs", "http://other:5000", "WAKU_BLOBS http://other:5000 is another leader's"),
        ("blobs", "https://other", "another leader's"),
        ("program", "../sh", "WAKU_PROGRAM: "),
        ("http_cap", "0", "must be 1 to"),
        ("http_cap", str(CLIENT_CAP_MAX + 1), "must be 1 to"),
        ("policies", "best", "best"),
        ("nodes", "ftp://a", "ftp://a"),
        ("blob_bytes", "much", "no size"),
    ],
)
def test_another_value_is_refused_with_its_place(field: str, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(field, text)
    assert told in str(refused.value)


def test_an_open_port_is_asked_for_on_the_command_line_alone() -> None:
    assert OPTIONS["allow_open"].env == ()
    assert not LEADER.allow_open
    assert LEADER.host == "127.0.0.1"
