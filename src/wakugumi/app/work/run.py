"""`waku run`: which flags does one job have?"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from wakugumi.app.client_settings import CONNECTION, ClientSettings
from wakugumi.app.flags import Only, with_settings
from wakugumi.app.options import (
    UNPACKING,
    Program,
    ProgramArgs,
    Unpacking,
)
from wakugumi.app.work.job_flags import JOB, JobFlags
from wakugumi.app.work.one_job import Taken, run_one
from wakugumi.app.work.target import choose

Client = Annotated[
    ClientSettings, Only("leader access old_leader patience_s client_id log_level log_json", without_flag=CONNECTION)
]


@with_settings
def run(
    program: Program,
    /,
    *,
    job: JobFlags = JOB,
    out: Annotated[str | None, Parameter(help="Folder for the program's files.")] = None,
    client: Client,
    unpacking: Unpacking = UNPACKING,
    program_args: ProgramArgs,
) -> int:
    """waku run PROGRAM [--file F]… [--cached ID/NAME]… [--out DIR] [OPTIONS] [-- ARG…]

    The program runs in a directory of its own, with the files of --file and --cached, and an empty standard input.
    Files that it makes there are written to --out DIR; without --out they are counted and discarded. Output is text in
    UTF-8: write binary output to a file. Files may be of any size. Exit code 6 if the job took longer than --timeout.

    Examples:
      waku run /bin/echo -- hello
      waku run ./simulate.py --file model.json --out results -- --steps 100
      waku run calcA --file input.txt --leader grid:5000 --timeout 60
      waku run calcA --cached dataset-v1/a.bin -- a.bin
    """
    options = job.options(program_args)
    slots = options.get("slots") or 1
    place = choose(program, client, slots)
    taken = Taken(out, unpacking.bytes_max(), unpacking.dot_files)
    return run_one(place, options, taken)
