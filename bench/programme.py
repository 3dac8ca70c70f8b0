"""What a contest consists of: who takes part, in what, for which goals. Three of them, as data.

`RIVALS` is `make bench`: Wakugumi with its queue in memory, against other grids. `DURABLE` is `make bench-durable`:
what the leader's journal costs, against the same grid without one and against a queue that has its messages on disk.
`before` is `make bench-before`: this checkout against another one.
"""

from dataclasses import dataclass
from pathlib import Path

from contest import Entry
from environment import ROOT
from report import Event, Figure, Goal, Ratio


@dataclass(frozen=True)
class Programme:
    """A contest. `command` is how it is held, `document` where a full run is written down."""

    command: str
    title: str
    introduction: str
    document: Path | None
    """None: a run is printed only."""
    folder: Path
    """Where the contestants' own directories are made."""
    on_disk: bool
    """Is it about what is on disk? Then `folder` must be on one, and its speed is told."""
    figures_limit_s: float
    """For the figures that are told at the end; kept back from the rounds."""
    entries: tuple[Entry, ...]
    events: tuple[Event, ...]
    ratios: tuple[Ratio, ...]
    figures: tuple[Figure, ...]


RIVALS = Programme(
    command="make bench",
    title="Benchmarks",
    introduction="""\
Each ratio is Wakugumi against a rival in the same round of the same run, on the same two CPUs; the median of the rounds
counts. Absolute numbers come second: they change with the machine and its other work. All queues are in memory here;
`make bench-durable` measures the journal, in a document of its own.
Method, and how to read the tables: [bench/README.md](../../bench/README.md).""",
    document=ROOT / "docs" / "internals" / "benchmarks.md",
    # Not where TMPDIR says: Ray's sockets live in here, and the path of a socket has at most 107 bytes.
    folder=Path("/tmp"),
    on_disk=False,
    figures_limit_s=100.0,  # 100 000 queued jobs and some starts of `waku`
    entries=(
        Entry(
            "ours",
            "Wakugumi",
            "ours",
            "A leader with its queue in memory (`--memory`; by default it keeps a journal), a worker with two slots, a "
            "client. Each job gets its own directory, stdout and stderr are captured, what it wrote is zipped and "
            "returned, and its result is kept by the worker until the leader confirms it.",
            arguments=("memory",),
            ours=True,
            tells_figures=True,
        ),
        Entry(
            "leader",
            "Wakugumi leader",
            "leader",
            "The leader alone, with its queue in memory (`--memory`): client and worker are processes that send and "
            "answer 200-byte jobs and run nothing.",
            arguments=("memory",),
            ours=True,
            tells_figures=True,
        ),
        Entry(
            "hyperqueue",
            "HyperQueue",
            "rivals.hyperqueue",
            "By its Python API (the wheel holds no `hq` command): server and worker in one process, no journal, all "
            "jobs tasks of one submit. Each task gets its own directory, stdout and stderr go to files; nothing is "
            "zipped or returned. Its API looks for results once a second, we look every 1 to 10 ms. One by one it "
            "waits some 20 ms between two rounds of scheduling and some 40 ms for TCP's delayed acknowledgement, its "
            "worker's connection being without TCP_NODELAY.",
        ),
        Entry(
            "ray",
            "Ray",
            "rivals.ray",
            "`subprocess.run` in a task, two CPUs, no dashboard. Returns the exit code only: no directory, no capture, "
            "no ZIP; all state in memory. Even at rest it uses about 2 % of the two CPUs, in everybody's turns.",
        ),
        Entry(
            "celery",
            "Celery + Redis",
            "rivals.celery",
            "`subprocess.run` in a task, two prefork processes, broker and results in a Redis-compatible server "
            "(Valkey) without persistence. Returns the exit code only: no directory, no capture, no ZIP.",
        ),
        Entry(
            "gearmand",
            "Gearman",
            "rivals.gearmand",
            "The C job server and two of its C command-line workers, where they are installed. Returns stdout: no "
            "directory, no stderr, no ZIP; queue in memory.",
        ),
        Entry(
            "jetstream",
            "NATS JetStream",
            "rivals.jetstream",
            "Messages only: publish, pull, acknowledge, reply, from Python with uvloop, 2 000 in flight, fetched in "
            "batches, memory storage. Knows no programs, no credit, no fairness between clients.",
            arguments=("memory",),
        ),
    ),
    events=(
        Event(
            "jobs", "whole /bin/true jobs", "throughput", 2000, 200, ("ours", "hyperqueue", "ray", "celery", "gearmand")
        ),
        Event("single", "one at a time", "latency", 300, 30, ("ours", "hyperqueue", "ray", "celery", "gearmand")),
        Event("noop", "no-op jobs", "throughput", 60_000, 10_000, ("leader", "jetstream")),
    ),
    ratios=(
        Ratio("whole jobs/s", "jobs", "per_s", "ours", ("hyperqueue",), Goal("at least", 2.0)),
        Ratio("whole jobs/s", "jobs", "per_s", "ours", ("ray",), Goal("at least", 1.0)),
        Ratio("whole jobs/s", "jobs", "per_s", "ours", ("celery",)),
        Ratio("whole jobs/s", "jobs", "per_s", "ours", ("gearmand",)),
        Ratio("one at a time, p50", "single", "p50_ms", "ours", ("ray", "celery", "hyperqueue"), Goal("at most", 0.75)),
        Ratio("one at a time, p99", "single", "p99_ms", "ours", ("celery",), Goal("at most", 1.0)),
        Ratio("one at a time, p50", "single", "p50_ms", "ours", ("gearmand",)),
        Ratio("no-op jobs/s", "noop", "per_s", "leader", ("jetstream",), Goal("at least", 2.5)),
    ),
    figures=(
        Figure("per_s", "no-op jobs through the leader", "per s", Goal("at least", 60_000), of=("leader", "noop")),
        Figure("leader_cpu_us", "leader CPU per no-op job", "us", Goal("at most", 12), of=("leader", "noop")),
        Figure("leader_cpu_us_500_workers", "the same with 500 workers", "us", Goal("at most", 20)),
        Figure("queued_100k_mib", "memory for 100 000 queued jobs", "MiB", Goal("at most", 60)),
        Figure("waku_run_s", "`waku run` of /bin/true, from nothing", "s", Goal("at most", 0.4)),
        Figure("match_100k_us", "a subject matched against 100 000 patterns", "us", Goal("at most", 25)),
        Figure("match_ratio_100k_100", "that time, divided by that for 100 patterns", "", Goal("at most", 3)),
        Figure("join_ms", "a worker joins, with 100 000 patterns there", "ms", Goal("at most", 1)),
    ),
)

DURABLE = Programme(
    command="make bench-durable",
    title="Benchmarks of the journal",
    introduction="""\
The cost of losing no job. Each ratio is Wakugumi with its journal against a rival in the same round of the same run, on
the same two CPUs and the same disk; the median of the rounds counts. Absolute numbers come second: they change with the
machine, its other work, and most of all with its disk.
Method, and how to read the tables: [bench/README.md](../../bench/README.md).""",
    document=ROOT / "docs" / "internals" / "benchmarks-durable.md",
    folder=ROOT / ".bench",  # many a /tmp is in memory
    on_disk=True,
    figures_limit_s=100.0,  # a million jobs written and read again; ten kills
    entries=(
        Entry(
            "durable",
            "Wakugumi, durable",
            "ours",
            "A leader with its journal (`--state`), a worker with two slots, a client. A job counts as accepted, and "
            "its result is handed on, when the leader has it on disk: written and synced, many in one commit. Each job "
            "gets its own directory, stdout and stderr are captured, what it wrote is zipped and returned.",
            arguments=("durable",),
            ours=True,
        ),
        Entry(
            "memory",
            "Wakugumi, in memory",
            "ours",
            "The same without the journal (`--memory`): what is queued is gone with the leader.",
            arguments=("memory",),
            ours=True,
        ),
        Entry(
            "leader-durable",
            "Leader, durable",
            "leader",
            "The leader alone, with its journal (`--state`): client and worker are processes that send and answer "
            "200-byte jobs and run nothing. Its CPU time is that of all its threads.",
            arguments=("durable",),
            ours=True,
        ),
        Entry(
            "leader-memory",
            "Leader, in memory",
            "leader",
            "The same without the journal (`--memory`).",
            arguments=("memory",),
            ours=True,
        ),
        Entry(
            "jetstream-file",
            "JetStream, file",
            "rivals.jetstream",
            "Messages only: publish, pull, acknowledge, reply, from Python with uvloop, 2 000 in flight, fetched in "
            "batches (one by one: singly). File storage as it comes: it confirms what it has given to the operating "
            "system, and syncs every two minutes, so a power cut loses what it had confirmed. Replies are not stored. "
            "Knows no programs, no credit, no fairness between clients.",
            arguments=("file",),
        ),
        Entry(
            "jetstream-always",
            "JetStream, sync always",
            "rivals.jetstream",
            "The same with `sync_interval: always`: every write is synced before it is confirmed. Replies are still "
            "not stored, where Wakugumi's results are.",
            arguments=("always",),
        ),
        Entry(
            "restart",
            "Wakugumi, restarted",
            "restart",
            "Takes no turns. A journal with 1 000 000 queued jobs of 200 bytes, of 100 clients, is written through the "
            "journal's own code, then `waku leader` is started on it. Its pages are still in the system's cache. "
            "Afterwards it is asked for all of the jobs.",
            ours=True,
            tells_figures=True,
        ),
        Entry(
            "kills",
            "Wakugumi, killed",
            "kills",
            "Takes no turns. A leader with its journal, with a worker and jobs queued, is killed by SIGKILL ten times, "
            "and started again up to a second later. Measured from its first line, which says that it listens, to the "
            "start of the next program, by the program's own clock; the worker is the same process all along. If a "
            "program ran twice, there is no figure.",
            ours=True,
            tells_figures=True,
        ),
    ),
    events=(
        Event("jobs", "whole /bin/true jobs", "throughput", 2000, 200, ("durable", "memory")),
        Event(
            "noop",
            "no-op jobs",
            "throughput",
            60_000,
            10_000,
            ("leader-durable", "leader-memory", "jetstream-file", "jetstream-always"),
            slow=("jetstream-always",),
        ),
        Event(
            "single",
            "no-op, one at a time",
            "latency",
            1_000,
            200,
            ("leader-durable", "leader-memory", "jetstream-file", "jetstream-always"),
        ),
    ),
    ratios=(
        Ratio("whole jobs/s", "jobs", "per_s", "durable", ("memory",), Goal("at least", 0.9)),
        Ratio("no-op jobs/s", "noop", "per_s", "leader-durable", ("jetstream-file",), Goal("at least", 2.0)),
        Ratio("no-op jobs/s", "noop", "per_s", "leader-durable", ("jetstream-always",), Goal("at least", 10.0)),
        Ratio("no-op jobs/s", "noop", "per_s", "leader-durable", ("leader-memory",)),
        Ratio("one at a time, p50", "single", "p50_ms", "leader-durable", ("jetstream-always",), Goal("at most", 1.0)),
        Ratio("one at a time, p50", "single", "p50_ms", "leader-durable", ("jetstream-file",)),
    ),
    figures=(
        Figure(
            "per_s", "no-op jobs through the leader", "per s", Goal("at least", 40_000), of=("leader-durable", "noop")
        ),
        Figure("leader_cpu_us", "leader CPU per no-op job", "us", Goal("at most", 20), of=("leader-durable", "noop")),
        Figure("p50_ms", "a no-op job, one at a time, p50", "ms", Goal("at most", 1), of=("leader-durable", "single")),
        Figure("restart_s", "restart with 1 000 000 queued jobs, until it listens", "s", Goal("at most", 10)),
        Figure("restart_mib", "its resident memory then", "MiB", Goal("at most", 400)),
        Figure("restart_peak_mib", "the most it had until then", "MiB"),
        Figure("next_job_max_s", "killed leader listens again to next assignment, longest", "s", Goal("at most", 1)),
        Figure("next_job_median_s", "the same, median", "s"),
    ),
)


def before(root: Path) -> Programme:
    """This checkout against another one, each with its own benchmark scripts and its own `.venv`."""
    python = root / ".venv" / "bin" / "python"
    what = {"ours": "Whole jobs", "leader": "The leader alone, with no-op jobs"}
    kept = {"memory": "queue in memory", "durable": "with a journal"}
    entries = tuple(
        Entry(
            f"{module}-{keeping}-{when}",
            f"{module}, {keeping}, {when}",
            module,
            f"{what[module]}, {kept[keeping]}: {'this checkout' if when == 'now' else 'the other checkout'}.",
            arguments=(keeping,),
            ours=True,
            python=python if when == "before" else None,
            bench=root / "bench" if when == "before" else None,
        )
        for module in what
        for keeping in kept
        for when in ("before", "now")
    )
    turns = (("jobs", "ours", "throughput", 1500, 200), ("noop", "leader", "throughput", 40_000, 5_000))
    turns += (("single", "ours", "latency", 300, 30),)
    return Programme(
        command=f"make bench-before BEFORE={root.name}",
        title="Before and after",
        introduction="This checkout against another one, in turns.",
        document=None,
        folder=ROOT / ".bench",
        on_disk=True,
        figures_limit_s=0.0,
        entries=entries,
        events=tuple(
            Event(
                f"{name}-{keeping}",
                f"{name}, {keeping}",
                turn,
                jobs,
                quick,
                (f"{module}-{keeping}-before", f"{module}-{keeping}-now"),
            )
            for keeping in kept
            for name, module, turn, jobs, quick in turns
        ),
        ratios=tuple(
            Ratio(
                f"{name}, {keeping}: {measure}",
                f"{name}-{keeping}",
                measure,
                f"{module}-{keeping}-now",
                (f"{module}-{keeping}-before",),
            )
            for keeping in kept
            for name, module, measure in (
                ("jobs", "ours", "per_s"),
                ("noop", "leader", "per_s"),
                ("noop", "leader", "leader_cpu_us"),
                ("single", "ours", "p50_ms"),
            )
        ),
        figures=(),
    )
