"""How does `waku top` look on a screen of any size?"""

from __future__ import annotations

import re

import msgspec
import pytest
from tests.kit.top_answer import an_answer, shown

from wakugumi.app.show.top_view import plain, view

pytestmark = pytest.mark.spec("L8", "S4")


def test_all_of_it_on_a_wide_screen() -> None:
    assert shown(view(an_answer(), "grid:5000", 140, 40)) == [
        "waku top  grid:5000   up 2 h 00 min   with a journal",
        "queued 123,456   running 56 of 60 slots   in 1,234/s   out 99.9/s   ok 8,000   failed 14",
        "",
        "worker                slots  cpu  state  hears",
        "00000000  ··········   0/20  50%  busy   calca.> calca.rack-0",
        "rack-1    █·········   1/20  50%  busy   calca.>",
        "rack-2    █·········   2/20  50%  busy   calca.>",
        "",
        "subject   queued  running  in/s  out/s  wait p50    p95    p99  run p50    p95   p99  failed  again  dead",
        "calca.s0   1,000        5  20.0   19.5     12 ms  43 ms  1.3 s   310 ms  2.2 s  75 s       7     28     7",
        "calca.s1   1,000        5  20.0   19.5     12 ms  43 ms  1.3 s   310 ms  2.2 s  75 s       7     28     7",
        "",
        "group  queued  running  slots  workers  out/s  wait p50    p95    p99  run p50    p95   p99  failed  again  dead",  # noqa: E501
        "calca   2,000       56     60        3   19.5     12 ms  43 ms  1.3 s   310 ms  2.2 s  75 s      14     56    14",  # noqa: E501
        "",
        "   failed  reason  program  worker  job                                   subject",
        "7.5 s ago  exit    calcA    rack-1  00112233-4455-6677-8899-aabbccddeeff  calca.s0",
        "7.5 s ago  exit    calcA    rack-1  00112233-4455-6677-8899-aabbccddeeff  calca.s0",
        "",
        "client  is    unfinished   running  not fetched",
        "desk-1  here          70  56 of 64      2.0 KiB",
    ]


def test_a_narrow_screen_loses_columns_and_not_its_numbers() -> None:
    assert shown(view(an_answer(workers=500, subjects=40), "grid:5000", 60, 20)) == [
        "waku top  grid:5000   up 2 h 00 min   with a journal",
        "queued 123,456   running 56 of 60 slots   in 1,234/s",
        "out 99.9/s   ok 8,000   failed 14",
        "",
        "worker                slots  cpu  state  hears",
        "00000000  ··········   0/20  50%  busy   calca.> calca.rack…",
        "rack-1    █·········   1/20  50%  busy   calca.>",
        "… and 498 more",
        "",
        "subject   queued  running  in/s  out/s  failed",
        "calca.s0   1,000        5  20.0   19.5       7",
        "calca.s1   1,000        5  20.0   19.5       7",
        "… and 38 more",
        "",
        "group  queued  running  slots  workers  out/s  failed",
        "calca   2,000       56     60      500   19.5      14",
        "",
        "   failed  reason  program  worker",
        "7.5 s ago  exit    calcA    rack-1",
        "7.5 s ago  exit    calcA    rack-1",
    ]


@pytest.mark.parametrize("width", [1, 9, 30, 60, 80, 120, 300])
@pytest.mark.parametrize("height", [1, 2, 5, 10, 20, 24, 40, 100])
def test_it_fits_any_screen_and_every_row_is_shown_or_counted(width: int, height: int) -> None:
    lines = shown(view(an_answer(workers=500, subjects=40, failures=20), "grid:5000", width, height, silent_s=5.0))
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    if width < 30:
        return
    for title, total in (("worker ", 500), ("subject ", 40)):
        starts = [at for at, line in enumerate(lines) if line.startswith(title)]
        for start in starts:
            rows = lines[start + 1 :]
            rows = rows[: rows.index("")] if "" in rows else rows
            more = re.fullmatch(r"… and (\d+) more", rows[-1])
            assert len(rows) - bool(more) + (int(more[1]) if more else 0) == total
            assert len(rows) > bool(more), "a title alone tells nothing"


def test_without_a_height_all_rows_are_shown_and_what_the_leader_left_out_is_counted() -> None:
    lines = shown(view(an_answer(workers=500, subjects=40), "grid:5000", 160))
    assert sum(line.startswith("rack-") for line in lines) == 49
    assert "… and 450 more" in lines
    assert sum(line.startswith("calca.s") for line in lines) == 40


def test_names_in_wide_letters_stand_in_line() -> None:
    answer = an_answer()
    rows = [msgspec.structs.replace(answer.workers[0], name="枠組み"), answer.workers[1]]
    lines = shown(view(msgspec.structs.replace(answer, workers=rows), "grid:5000", 80, 40))
    assert lines[5].startswith("枠組み  ··········   0/20")
    assert lines[6].startswith("rack-1  █·········   1/20")
    tiny = shown(view(msgspec.structs.replace(answer, workers=rows), "grid:5000", 5, 40))
    assert tiny[-1] != ""


@pytest.mark.parametrize(
    ("changes", "said", "style"),
    [
        ({"full": True}, "full: no further jobs are accepted", "bold red"),
        ({"full": True, "disk_low": True}, "its disk is nearly full: nothing is accepted", "bold red"),
        ({"letters": 3}, "3", "red"),
        ({"durable": False}, "in memory only", "yellow"),
    ],
)
def test_what_is_wrong_is_seen_at_once(changes: dict[str, int], said: str, style: str) -> None:
    answer = an_answer()
    answer = msgspec.structs.replace(answer, status=msgspec.structs.replace(answer.status, **changes))
    header = view(answer, "grid:5000", 200, 40)[:3]
    assert (said, style) in [piece for line in header for piece in line]


def test_a_silent_leader_is_told_first() -> None:
    lines = view(an_answer(), "grid:5000", 80, 24, silent_s=12.3)
    assert lines[0] == [("no answer for 12.3 s: waiting for the leader", "bold red")]


def test_a_leader_without_anything_is_a_header() -> None:
    answer = an_answer(workers=0, subjects=0, failures=0)
    status = msgspec.structs.replace(answer.status, groups=[], busiest=[], slots=1)
    lines = shown(view(msgspec.structs.replace(answer, status=status), "grid:5000", 120, 24))
    assert len(lines) == 2
    assert "of 1 slot " in lines[1]


@pytest.mark.spec("W2", "W9")
def test_a_worker_that_rests_or_is_held_back_says_why() -> None:
    answer = an_answer(workers=3)
    rows = list(answer.workers)
    rows[1] = msgspec.structs.replace(rows[1], state="resting", rests="no inodes are free in /tmp/jobs")
    rows[2] = msgspec.structs.replace(rows[2], state="held back", held_by=0.93)
    text = "\n".join(plain(line) for line in view(msgspec.structs.replace(answer, workers=rows), "leader", 160))
    assert re.search("resting +no inodes are free in /tmp/jobs", text)
    assert re.search("held back +others use 93% of its CPU", text)
    assert "why" not in "\n".join(plain(line) for line in view(answer, "leader", 160))
