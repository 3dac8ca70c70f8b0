"""Which commands are there? One line each: name, module, summary.

The rest of a command's help is the docstring of its function: how it is called, then what it does, then examples that
work. Nothing is imported until its command is called or its help is wanted, so that a quick command stays quick.
"""

from __future__ import annotations

from importlib import import_module
from inspect import cleandoc
from typing import Final, NamedTuple


class Command(NamedTuple):
    name: str
    """As it is typed; `jobs list` is the command `list` of the family `jobs`."""
    module: str
    """Below `wakugumi.app`. Its function is called like the command, `jobs_list`, or stands after a colon."""
    summary: str

    @property
    def function(self) -> str:
        """For import: `wakugumi.app.admin.jobs:jobs_list`."""
        module, _, name = self.module.partition(":")
        return f"wakugumi.app.{module}:{name or self.name.replace(' ', '_')}"


class HelpPage(NamedTuple):
    usage: str
    about: str
    """Its first paragraph is the summary."""
    examples: str


ABOUT: Final = """\
Run a program many times, on this machine or on many, with nothing lost.

Without a leader, `waku run` and `waku map` work right here, with no set-up. With --leader HOST:PORT (or WAKU_LEADER) \
they hand their jobs to a grid; with several leaders, HOST:PORT,HOST:PORT, one may be lost.

Settings: flag > WAKU_* environment > waku.toml here (its use is said) > default. stdout is data, stderr is talk.
Exit codes: 0 ok, 1 job failed, 2 usage, 3 not found, 4 denied, 5 no leader, 6 timed out."""

EXAMPLES: Final = """\
Examples:
  waku demo                       price 240 options here, and check them
  waku run /bin/echo -- hello     one job
  waku map ./price.py options/    one job per file of a folder
  waku up --programs ./bin        a leader and a worker, for others to use"""

FAMILIES: Final = {
    "jobs": (
        "What the leader knows of its jobs: list, show, story, explain, cancel, wait.",
        "Examples:\n  waku jobs list --state queued\n  waku jobs explain monday-run",
    ),
    "dead": (
        "Jobs that used up their attempts: list, show, requeue, drop.",
        "Examples:\n  waku dead list\n  waku dead show monday-run\n  waku dead requeue --reason disk",
    ),
    "caches": (
        "Files that workers have beforehand: put, list, show, pin, drop.",
        "Examples:\n  waku caches list\n  waku caches put dataset-v1 data/\n  waku run calcA --cached dataset-v1/a.bin",
    ),
    "workers": (
        "Who works for the leader: list, drain, resume.",
        "Examples:\n  waku workers list\n  waku workers drain rack1-7",
    ),
    "store": (
        "What a leader keeps on its disk: check, backup, repair.",
        "Examples:\n  waku store check state/\n  waku store backup state/ monday.sqlite",
    ),
}
"""Commands that share a first word: what they have in common, and examples."""

_ROWS: Final = {
    "Get work done": (
        ("map", "work.map:map_inputs", "One job per input; run again, it does only what is missing or failed."),
        ("run", "work.run", "One job: its output is the output, its exit code the exit code."),
        ("submit", "work.submit", "Hand in jobs and leave: prints their ids once the leader has them."),
        ("broadcast", "work.broadcast", "The same job once on every worker that matches: each answer as it comes."),
        ("send", "work.send", "Send one file to a node, by line, and save what its program made."),
        ("demo", "work.demo", "Price 240 options by Monte Carlo, here, and compare them with Black-Scholes."),
    ),
    "Run a grid": (
        ("up", "serve.up", "A leader and a worker on this machine, until you stop it."),
        ("leader", "serve.leader", "A leader: takes jobs from clients and gives them to workers."),
        ("gateway", "serve.gateway", "A gateway: one HTTP address before several groups, each a leader with workers."),
        ("worker", "serve.worker", "A worker: runs programs for a leader."),
        ("node", "serve.node", "A node: runs programs for whoever speaks HTTP or lines."),
        ("client", "work.sample_clients", "Submit sample jobs to a leader and print their results."),
        ("clientx", "work.sample_clients", "The same with several leaders at once."),
    ),
    "Look after it": (
        ("status", "admin.status", "How the leader is, and what is queued where."),
        ("top", "admin.top", "A live view: workers and their slots, queues, rates, delays, and what failed last."),
        ("jobs list", "admin.jobs", "Which jobs there are, the newest last."),
        ("jobs show", "admin.jobs", "Where a job is."),
        ("jobs story", "admin.jobs", "What happened to a job so far."),
        ("jobs explain", "admin.jobs", "Why a job is not running, or not done: from the scheduler's own state."),
        ("jobs cancel", "admin.jobs", "Cancel jobs by id, by client, or by a pattern of their subject."),
        ("jobs wait", "admin.jobs", "Wait for jobs that were submitted before, and show their results."),
        ("dead list", "admin.dead", "Which jobs used up their attempts and wait for a person, the newest last."),
        ("dead show", "admin.dead", "The attempts of a dead job: where, when, how each ended, and its last output."),
        ("dead requeue", "admin.dead", "Open dead jobs again, with all their attempts before them."),
        ("dead drop", "admin.dead", "Forget dead jobs, chosen as in `waku dead requeue`."),
        ("caches put", "admin.caches", "Put files on workers beforehand, under an id: jobs name them with --cached."),
        ("caches list", "admin.caches", "Which caches there are, their size, on how many workers, and how often used."),
        ("caches show", "admin.caches", "What is in a cache, and which workers have it."),
        ("caches pin", "admin.caches", "Keep a cache until it is dropped: it is never evicted to make room."),
        ("caches drop", "admin.caches", "Forget a cache, at the leader and on all workers."),
        ("workers list", "admin.workers", "Who is connected, for which jobs, and how busy."),
        ("workers drain", "admin.workers", "Give a worker no further jobs: what it runs may finish."),
        ("workers resume", "admin.workers", "Give a drained worker jobs again."),
        ("store check", "admin.store", "Read all of a leader's journal: what is in it, and whether it is sound."),
        ("store backup", "admin.store", "Copy a leader's journal to a new file, as it is at one moment."),
        ("store repair", "admin.store", "Keep what can be read of a damaged journal, and say what cannot."),
        ("drill", "drill.drill", "Kill leader, workers and client at random, and count what is lost."),
    ),
}
COMMANDS: Final = {title: tuple(Command(*row) for row in rows) for title, rows in _ROWS.items()}


def help_page(command: Command) -> HelpPage:
    """From the docstring of its function, whose lines are joined to paragraphs again, but for the examples."""
    module, _, name = command.function.partition(":")
    usage, *about, examples = cleandoc(getattr(import_module(module), name).__doc__).split("\n\n")
    paragraphs = (" ".join(text.split()) for text in (command.summary, *about))
    return HelpPage(f"Usage: {' '.join(usage.split())}", "\n\n".join(paragraphs), examples)
