"""Do subjects and patterns mean here what they mean in NATS?

The facts were read from the test suites of NATS servers and clients. They are not part of this repository: the
variable WAKU_CONFORMANCE names the folder that holds them. One of them, that `foo/bar` is no subject, is a rule of NATS
Streaming which the NATS server does not share; Wakugumi keeps it.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from wakugumi.core.subject import (
    PatternTree,
    is_valid_pattern,
    is_valid_subject,
    matches,
    overlaps,
    parse_pattern,
    parse_subject,
)


class Fact(msgspec.Struct, forbid_unknown_fields=True):
    kind: Literal["match", "collide", "valid_pattern", "valid_subject"]
    pattern: str | None
    subject: str | None
    expect: bool
    source: str


FOLDER = os.environ.get("WAKU_CONFORMANCE", "")


def facts(*kinds: str) -> Sequence[object]:
    if not FOLDER:
        why = "WAKU_CONFORMANCE does not name the folder of nats_subject_cases.json"
        return [pytest.param(None, marks=pytest.mark.skip(reason=why), id="no-data")]
    rows = msgspec.json.decode(Path(FOLDER, "nats_subject_cases.json").read_bytes(), type=list[Fact])
    chosen = [pytest.param(row, id=f"{row.source}-{row.expect}") for row in rows if row.kind in kinds]
    assert chosen, f"no rows about {kinds}"
    return chosen


@pytest.mark.spec("S1")
@pytest.mark.parametrize("fact", facts("valid_subject", "valid_pattern"))
def test_valid_here_is_what_is_valid_there(fact: Fact) -> None:
    if fact.kind == "valid_subject":
        assert fact.subject is not None
        assert is_valid_subject(fact.subject) is fact.expect
    else:
        assert fact.pattern is not None
        assert is_valid_pattern(fact.pattern) is fact.expect


@pytest.mark.spec("S1", "S3")
@pytest.mark.parametrize("fact", facts("match"))
def test_a_pattern_matches_here_what_it_matches_there(fact: Fact) -> None:
    assert fact.pattern is not None
    assert fact.subject is not None
    assert matches(fact.pattern, fact.subject) is fact.expect
    assert matches(fact.pattern.upper(), fact.subject.lower()) is fact.expect
    if is_valid_pattern(fact.pattern) and is_valid_subject(fact.subject):
        tree: PatternTree[str] = PatternTree()
        tree[parse_pattern(fact.pattern)] = "heard"
        assert tree.match(parse_subject(fact.subject)) == ["heard"] * fact.expect


@pytest.mark.spec("S2")
@pytest.mark.parametrize("fact", facts("collide"))
def test_patterns_overlap_here_that_collide_there(fact: Fact) -> None:
    assert fact.pattern is not None
    assert fact.subject is not None
    for one, other in [(fact.pattern, fact.subject), (fact.subject, fact.pattern)]:
        assert overlaps(one, other) is fact.expect
        assert overlaps(one.upper(), other.lower()) is fact.expect
        tree: PatternTree[str] = PatternTree()
        tree[parse_pattern(one)] = "heard"
        assert tree.overlapping(parse_pattern(other)) == ["heard"] * fact.expect
