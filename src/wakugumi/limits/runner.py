"""Programs, their results and the machine they run on."""

from __future__ import annotations

from typing import Final

from wakugumi.limits.units import KIB, MIB

# Jobs and their programs (SPEC W2, W3, W4, W8)
JOB_TIMEOUT_S: Final = 900.0
"""Time that an attempt may run if the job names no timeout."""
JOB_TIMEOUT_MAX_S: Final = 30 * 86_400.0
"""Longest timeout that a job may name."""
OPEN_FILES_PER_SLOT_MAX: Final = 6
"""File descriptors that a running job takes of its worker: its output, the program's end, its folder, a pipe."""
OPEN_FILES_BESIDE_MIN: Final = 40
"""File descriptors that the worker itself needs: connections, a journal of results, threads."""
CPU_CAP: Final = 0.75
"""Share of the machine's CPU time beyond which a worker holds its credit back (W3)."""
CPU_CAP_MIN: Final = 0.10
"""Smallest share that may be set."""
CPU_CAP_MAX: Final = 0.95
"""Largest share that may be set."""
CREDIT_HELD_MAX_S: Final = 2.0
"""Longest time that a finished job's credit is held back, however busy others keep the machine; or as long as the job
ran if that is less."""
PROBE_FIRST_S: Final = 1.0
"""A worker whose machine is out of order tests after this pause whether a program can be started; the pause doubles."""
PROBE_MAX_S: Final = 60.0
"""Longest pause between two such tests."""
KILL_GRACE_S: Final = 1.0
"""Time between SIGTERM and SIGKILL: enough to remove a lock file, not more."""
OUTPUT_BYTES_MAX: Final = 64 * MIB
"""stdout or stderr of one job. Beyond it the job is ended: a frame could not carry it, and the disk is everyone's."""
DONE_TTL_S: Final = 600.0
"""Time for which a worker keeps finished jobs (W4)."""
KEPT_JOBS_MAX: Final = 1_000_000
"""Finished jobs on one machine's disk, some 200 bytes of memory each. Where there are more, the oldest go before their
days are over, but none within DONE_TTL_S."""
ARCHIVE_DEFLATE_FROM_BYTES: Final = 4 * KIB
"""Smaller files are stored: deflating them costs more time than it saves bytes."""
RESULT_BYTES_MAX: Final = 1024 * 1024 * MIB
"""Files of one job, before packing: 1 TiB, which takes an hour to move. More is a mistake, such as a sparse file whose
size is a typing error, and would keep a worker busy for a day."""
LARGE_WORK_BYTES: Final = 256 * MIB
"""Inputs or results of one job above this size are copied and packed by threads of their own: other jobs do not wait
for them."""
LARGE_WORK_FILES_MAX: Final = 20_000
"""Inputs or results with more files than this are copied and packed by threads of their own."""
ARCHIVE_ENTRIES_MAX: Final = 10_000_000
"""Files, folders and links in one result. To unpack so many takes ten minutes, and they are a good part of a disk's
inodes; more is no result but an attack on its reader."""
ARCHIVE_ENTRIES_IN_LOOP_MAX: Final = 100
"""Entries of a small result that a leader or node looks at in its loop before it answers over HTTP: some 10 µs each. A
thread looks at more."""
ARCHIVE_LIST_BYTES_MAX: Final = 2 * 1024 * MIB
"""Size of the list of an archive's entries: ARCHIVE_ENTRIES_MAX of them with names of 150 bytes. The list is read for
each pass over the archive."""
UNPACKED_UNSAID_BYTES: Final = 1024 * MIB
"""Bytes to which a result of an old worker, which does not tell its size, may always unpack."""
UNPACKED_UNSAID_TIMES_MAX: Final = 100
"""Larger results of old workers may unpack to so many times their size: text shrinks to a tenth, a bomb to a
thousandth."""
HOSTILE_NAMES_MAX: Final = 1_000
"""Names that no honest worker sends, and that a leader takes out of an answer over HTTP. One with more is refused. Of
dot-files there may be any number: older workers send them, and a program may leave a `.git` folder."""
DISK_FREE_MIN_BYTES: Final = 64 * MIB
"""Below this the worker takes no job: it could not keep its result."""
LOOP_PAUSE_FIRST_S: Final = 0.5
"""Pause after an unforeseen exception before a loop that must live begins anew; the pause doubles."""
LOOP_PAUSE_MAX_S: Final = 5.0
"""Longest pause before a loop that must live begins anew: shorter than any lease."""
