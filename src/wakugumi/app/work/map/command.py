"""`waku map`: what does its command line mean?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Final

from cyclopts import Parameter

from wakugumi.app.client_settings import CONNECTION, ClientSettings
from wakugumi.app.flags import Only, with_settings
from wakugumi.app.options import (
    UNPACKING,
    Program,
    ProgramArgs,
    Unpacking,
)
from wakugumi.app.show.output import one, say
from wakugumi.app.work.job_flags import JOB, JobFlags
from wakugumi.app.work.map.inputs import Inputs
from wakugumi.app.work.map.output import OutFolder
from wakugumi.app.work.map.run import Map
from wakugumi.app.work.target import choose
from wakugumi.errors import ConfigError

OUT: Final = "waku-out"

Client = Annotated[
    ClientSettings,
    Only("slots leader access old_leader patience_s cap client_id log_level log_json", without_flag=CONNECTION),
]


@with_settings
def map_inputs(
    program: Program,
    /,
    *inputs: Annotated[str, Parameter(help="Files, or folders with files.")],
    out: Annotated[str, Parameter(help="Folder for the results.")] = OUT,
    job: JobFlags = JOB,
    inputs_from: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="A file with further inputs, one path per line; - is stdin."),
    ] = None,
    fresh: Annotated[bool, Parameter(negative="", show_default=False, help="Run all inputs again.")] = False,
    client: Client,
    unpacking: Unpacking = UNPACKING,
    program_args: ProgramArgs,
) -> int:
    """waku map PROGRAM INPUT… [--file F]… [--cached ID/NAME]… [--out DIR] [OPTIONS] [-- ARG…]

    INPUT is a file of any size, or a folder: its files in the order of their names, without hidden ones and without
    subfolders. A job finds its input in its directory. {} in an ARG is replaced by the input's name; without any {} the
    name is the last argument. --file and --cached add files to every job.

    Each result is a folder DIR/<input's name>/ with the program's files, stdout.txt, stderr.txt and a record,
    .waku.json. Inputs that share a name keep the part of their path that differs. A result's folder is complete, also
    if the map was killed. Exit code 1 if a job failed.

    Without a leader, PROGRAM is a path or a name on PATH, and the jobs run on this machine. With a leader, PROGRAM is
    the name of a program that is installed on the workers. The leader does not repeat jobs whose results it still has:
    use --fresh after the program was changed there.

    Examples:
      waku map ./price.py options/                      results in waku-out/
      waku map gzip logs/*.txt --out packed -- -9 {}
      waku map convert photos/ -- {} -resize 50% small.png
      find . -name '*.csv' | waku map ./load.sh --inputs-from -
      waku map calcA inputs/ --leader grid:5000 --cap 200
      waku map calcA inputs/ --leader a:5000,b:5000,c:5000
    """
    options = job.options()
    place = choose(program, client)
    job_slots = options.get("slots") or 1
    if not place.leader and job_slots > place.parallel:
        raise ConfigError(
            f"a job needs {job_slots} slots, and this map has {place.parallel}", "raise --slots, or lower --job-slots"
        )
    max_bytes = unpacking.bytes_max()
    with (
        closing(_all_inputs(inputs, inputs_from)) as found,
        closing(OutFolder(out, max_bytes, dot_files=unpacking.dot_files)) as folder,
    ):
        return Map(place, found, folder, program_args, options, fresh=fresh).run()


def _all_inputs(named: Sequence[str], listed: str | None) -> Inputs:
    inputs = Inputs()
    for path in named:
        inputs.add(path)
    if listed is not None:
        inputs.add_list(listed)
    if not len(inputs):
        where = f" in {' '.join(named)}"[:200] if named else ""
        raise ConfigError(f"there are no inputs{where}", "name files, or folders with files, after the program")
    inputs.settle()
    if inputs.left_out:
        say(f"{one(inputs.left_out, 'folder')} inside the named ones left out: only their own files are inputs")
    return inputs
