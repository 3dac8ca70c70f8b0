"""Do the refusals of uploads say what the leader lacks, and what helps?"""

from __future__ import annotations

from wakugumi.core.transfers.upload_events import NO_VARIABLES, no_variables, too_big_for_old
from wakugumi.limits.wire import HELLO_DEADLINE_S


def test_a_leader_that_knows_no_variables_is_named_with_a_way_out() -> None:
    no = no_variables()
    assert no.code == NO_VARIABLES
    assert "--env" in no.hint


def test_a_job_too_large_for_an_old_leader_is_told_how_long_that_counts() -> None:
    no = too_big_for_old()
    assert no.code == "too-big"
    assert f"within {HELLO_DEADLINE_S:.0f} s" in no.message
