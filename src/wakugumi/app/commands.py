"""Which commands are there? One line each: name, module, summary.

The rest of a command's help is the docstring of its function: usage, behaviour, examples that work. A command's module
is imported only for a call or its help, so that quick commands stay quick.
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
Run a program many times, on this machine or on many, without losing a job.

Without a leader, `waku run` and `waku map` run jobs on this machine, with no set-up. With --leader HOST:PORT (or \
WAKU_LEADER) they send their jobs to a grid; of several leaders, HOST:PORT,HOST:PORT, one may fail.

Settings: flag > WAKU_* environment > waku.toml here (noted on stderr) > default. stdout is data, stderr is talk.
Exit codes: 0 ok, 1 job failed, 2 usage, 3 not found, 4 denied, 5 no leader, 6 timed out."""

EXAMPLES: Final = """\
Examples:
  waku demo                       price 240 options on this machine, and check them
  waku run /bin/echo -- hello     one job
  waku map ./price.py options/    one job per file of a folder
  waku up --programs ./bin        a leader and a worker, for others to use"""

FAMILIES: Final = {
    "jobs": (
        "Jobs of a leader: list, show, story, explain, cancel, wait.",
        "Examples:\n  waku jobs list --state queued\n  waku jobs explain monday-run",
    ),
    "dead": (
        "Jobs that used up their attempts: list, show, requeue, drop.",
        "Examples:\n  waku dead list\n  waku dead show monday-run\n  waku dead requeue --reason disk",
    ),
    "caches": (
        "Named sets of files on the workers: put, list, show, pin, drop.",
        "Examples:\n  waku caches list\n  waku caches put dataset-v1 data/\n  waku run calcA --cached dataset-v1/a.bin",
    ),
    "workers": (
        "Workers of a leader: list, drain, resume.",
        "Examples:\n  waku workers list\n  waku workers drain rack1-7",
    ),
    "keys": (
        "Keys of a leader, for other machines and users: make, list, show, revoke.",
        "Examples:\n  waku keys list\n  waku keys make desk-1 --role client\n  waku keys revoke desk-1",
    ),
    "store": (
        "The journal of a leader: check, backup, repair.",
        "Examples:\n  waku store check state/\n  waku store backup state/ monday.sqlite",
    ),
}
"""Commands that share a first word: summary and examples."""

_ROWS: Final = {
    "Get work done": (
        (
            "map",
            "work.map.command:map_inputs",
            "Run one job per input. A repeated call runs only missing and failed ones.",
        ),
        ("run", "work.run", "Run one job, with its output and its exit code."),
        ("submit", "work.submit", "Submit jobs without waiting: prints their ids once the leader has them."),
        ("broadcast", "work.broadcast", "Run the same job once on every matching worker."),
        ("send", "work.send", "Send one file to a node over TCP, and save the result."),
        ("demo", "work.demo", "Price 240 options on this machine, and compare them with Black-Scholes."),
    ),
    "Run a grid": (
        ("up", "serve.up", "Run a leader and a worker on this machine."),
        ("leader", "serve.leader", "Run a leader: it accepts jobs from clients and assigns them to workers."),
        ("gateway", "serve.gateway", "Run a gateway: one HTTP address for several groups, each a leader with workers."),
        ("worker", "serve.worker", "Run a worker: it runs programs for a leader."),
        ("node", "serve.node", "Run a node: it runs programs for callers over HTTP or plain TCP."),
        ("join", "access.join", "Join a grid with a line of its operator: later commands find the key by the address."),
        ("client", "work.sample_clients", "Submit sample jobs to a leader, and print their results."),
        ("clientx", "work.sample_clients", "Submit sample jobs to several leaders at once."),
    ),
    "Look after it": (
        ("status", "admin.status", "Show the state of a leader and its queues."),
        ("top", "admin.top", "Watch live: workers, slots, queues, rates, delays, last failures."),
        ("jobs list", "admin.jobs", "List jobs, the newest last."),
        ("jobs show", "admin.jobs", "Show the state of a job."),
        ("jobs story", "admin.jobs", "Show all events of a job."),
        ("jobs explain", "admin.jobs", "Explain why a job is not running or not done."),
        ("jobs cancel", "admin.jobs", "Cancel jobs by id, by client, or by a pattern of their subject."),
        ("jobs wait", "admin.jobs", "Wait for submitted jobs, and show their results."),
        ("dead list", "admin.dead", "List jobs that used up their attempts, the newest last."),
        ("dead show", "admin.dead", "Show the attempts of a dead job: where, when, how each ended, its last output."),
        ("dead requeue", "admin.dead", "Queue dead jobs again, with their full number of attempts."),
        ("dead drop", "admin.dead", "Delete dead jobs, chosen as in `waku dead requeue`."),
        ("caches put", "admin.caches", "Copy files to workers under an id; jobs use them with --cached ID/NAME."),
        ("caches list", "admin.caches", "List caches: size, workers that have them, uses."),
        ("caches show", "admin.caches", "Show the files of a cache, and its workers."),
        ("caches pin", "admin.caches", "Pin a cache: the leader keeps it until it is dropped."),
        ("caches drop", "admin.caches", "Delete a cache, at the leader and on all workers."),
        ("workers list", "admin.workers", "List workers: state, slots, CPU use, patterns."),
        ("workers drain", "admin.workers", "Assign no further jobs to a worker; running jobs finish."),
        ("workers resume", "admin.workers", "Assign jobs to a drained worker again."),
        ("link", "access.link", "Print a link with which a browser is known as you, once."),
        ("keys make", "access.keys", "Make a key, and print the line that joins another machine with it."),
        ("keys list", "access.keys", "List keys: role, state, last use, expiry. No secret is shown."),
        ("keys show", "access.keys", "Show the rules of a key, and what it may do."),
        ("keys revoke", "access.keys", "End a key, and close its connections."),
        ("store check", "admin.store", "Read all of a leader's journal: count its jobs, find damage."),
        ("store backup", "admin.store", "Copy a leader's journal, as of one moment, to a new file."),
        ("store repair", "admin.store", "Rebuild a damaged journal from its readable part, and name lost jobs."),
        ("drill", "drill.drill", "Kill leader, workers and client at random, and count lost jobs."),
    ),
}
COMMANDS: Final = {title: tuple(Command(*row) for row in rows) for title, rows in _ROWS.items()}


def help_page(command: Command) -> HelpPage:
    """Made from the docstring of its function. Lines are joined to paragraphs, except examples."""
    module, _, name = command.function.partition(":")
    usage, *about, examples = cleandoc(getattr(import_module(module), name).__doc__).split("\n\n")
    paragraphs = (" ".join(text.split()) for text in (command.summary, *about))
    return HelpPage(f"Usage: {' '.join(usage.split())}", "\n\n".join(paragraphs), examples)
