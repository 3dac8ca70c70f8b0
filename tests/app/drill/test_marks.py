"""Which marks does a drill leave, and how are they read?"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from wakugumi.app.drill import marks as dm
from wakugumi.app.drill.client import job_id
from wakugumi.app.drill.fleet import unfinished_in
from wakugumi.app.drill.marks import DrillMark, Marks, write_program


def test_what_several_write_is_read_line_by_line(tmp_path: Path) -> None:
    one, other = Marks(tmp_path / "marks"), Marks(tmp_path / "marks")
    one.put(dm.ACCEPTED, "client.1", 7)
    other.put(dm.RESULT, "client.1", 7, "OK")
    assert [(mark.what, mark.life, mark.job, mark.rest) for mark in one.new()] == [
        ("accepted", "client.1", 7, ""),
        ("result", "client.1", 7, "OK"),
    ]
    with open(tmp_path / "marks", "a") as torn:
        torn.write("12.5 kill wor")
        torn.flush()
        assert one.new() == []
        torn.write("ker-2.1 0\n")
    assert one.new() == [DrillMark(12.5, "kill", "worker-2.1")]
    assert one.new() == []
    one.close()
    other.close()


def test_the_program_marks_its_start_and_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    write_program(folder, folder / "marks")
    before = dm.now()
    program = folder / dm.FOLDER_PROGRAMS / dm.PROGRAM
    subprocess.run([program, "17", "0.01"], env={**os.environ, dm.LIFE: "worker-2.3"}, check=True)
    marks = Marks(folder / "marks")
    start, end = marks.new()
    marks.close()
    assert (start.what, start.life, start.kind, start.job) == ("start", "worker-2.3", "worker", 17)
    assert (end.what, end.job, end.rest) == ("end", 17, start.rest)
    assert before - 0.01 <= start.at <= end.at <= dm.now()


def test_what_a_worker_had_not_done_is_found_in_its_folder(tmp_path: Path) -> None:
    for number in (1, 2, 300):
        (tmp_path / job_id(number)).mkdir()
    (tmp_path / job_id(2) / ".done").touch()
    (tmp_path / "spare").mkdir()
    assert unfinished_in(tmp_path) == [1, 300]
    assert unfinished_in(tmp_path / "nobody") == []
