"""Which commands are there, and what does each say about itself?

One row per command: where its function lives, how it is called, what it is for, and examples that work. Nothing is
imported until its command is called, so that a quick command stays quick.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Command(NamedTuple):
    name: str
    """As it is typed; `jobs list` is the command `list` of the family `jobs`."""
    function: str
    usage: str
    """What follows the name."""
    about: str
    """Its first paragraph is one line, and stands in the list of commands."""
    examples: str


WORK: Final = "Get work done"
GRID: Final = "Run a grid"
LOOK: Final = "Look after it"

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

COMMANDS: Final[dict[str, tuple[Command, ...]]] = {
    WORK: (
        Command(
            "map",
            "wakugumi.app.work.map:map_inputs",
            "PROGRAM INPUT… [--file F]… [--cached ID/NAME]… [--out DIR] [OPTIONS] [-- ARG…]",
            """\
One job per input; run again, it does only what is missing or failed.

INPUT is a file, or a folder: its files in order, without hidden ones and without what is in folders inside. The file \
lies in the job's directory under its own name; an ARG may hold {} for that name, and without any {} the name is the \
last argument. Inputs may be of any size; --file and --cached add files that every job has.

Each result is a folder DIR/<input's name>/ with the files that the program made, stdout.txt, stderr.txt and a record, \
.waku.json. Inputs that share a name keep as much of their path as tells them apart. A folder there is a finished \
result, also if the map was killed. Exit code 1 if any job failed.

Without a leader PROGRAM is a path or a name on PATH, and the jobs run here. With one it is the name of a program that \
is installed on the workers; what the leader still knows of earlier runs is not run again, so use --fresh after the \
program was changed there.""",
            """\
Examples:
  waku map ./price.py options/                      results in waku-out/
  waku map gzip logs/*.txt --out packed -- -9 {}
  waku map convert photos/ -- {} -resize 50% small.png
  find . -name '*.csv' | waku map ./load.sh --inputs-from -
  waku map calcA inputs/ --leader grid:5000 --cap 200
  waku map calcA inputs/ --leader a:5000,b:5000,c:5000""",
        ),
        Command(
            "run",
            "wakugumi.app.work.run:run",
            "PROGRAM [--file F]… [--cached ID/NAME]… [--out DIR] [OPTIONS] [-- ARG…]",
            """\
One job: its output is the output, its exit code the exit code.

The job runs in a directory of its own, with the files you name in it and an empty standard input. What it makes there \
is written to --out DIR; without --out nothing is written, and you are told how many files there were. Its output is \
text in UTF-8: what is binary belongs in a file. Files may be of any size. Exit code 6 if it took longer than \
--timeout.""",
            """\
Examples:
  waku run /bin/echo -- hello
  waku run ./simulate.py --file model.json --out results -- --steps 100
  waku run calcA --file input.txt --leader grid:5000 --timeout 60
  waku run calcA --cached dataset-v1/a.bin -- a.bin""",
        ),
        Command(
            "submit",
            "wakugumi.app.work.submit:submit",
            "PROGRAM [--file F]… [--cached ID/NAME]… [--id ID] [--count N] [OPTIONS] [-- ARG…]",
            """\
Hand in jobs and leave: prints their ids once the leader has them.

An id of your own makes a job idempotent: handed in again, it is the same job.""",
            """\
Examples:
  waku submit calcA --file input.txt -- --mode=fast
  waku submit calcA --id monday-run
  waku submit calcA --priority 10 --job-slots 4
  waku jobs wait "$(waku submit calcA)" """.rstrip(),
        ),
        Command(
            "broadcast",
            "wakugumi.app.work.broadcast:broadcast",
            "PROGRAM [--file F]… [--within SECONDS] [OPTIONS] [-- ARG…]",
            """\
The same job once on every worker that matches: what each of them answers, as it comes.

Workers that join later are not included. One that has not answered --within its time counts as silent. Exit code 1 if \
any failed or was silent, if no worker matched, or if a leader could not be asked.""",
            """\
Examples:
  waku broadcast uptime
  waku broadcast refresh --subject calcA --within 10
  waku broadcast version -o json -- --short""",
        ),
        Command(
            "send",
            "wakugumi.app.work.send:send",
            "HOST:PORT… FILE [--id ID] [--out FILE] [--wait S] [--tls] [OPTIONS]",
            """\
Send one file to a node, by line, and save what its program made.

The result is FILE.result.zip. The addresses are tried in their order: one that is busy, fails or is not there is told \
on stderr, and the next is asked. Exit code 1 if none of them did it, 5 if the last one could not be reached.""",
            """\
Examples:
  waku send 127.0.0.1:9099 input.txt
  waku send a:9099 b:9099 input.txt --id night-7 --wait 60
  waku send a:9099 input.txt --ca ca.pem --cert me.pem""",
        ),
        Command(
            "demo",
            "wakugumi.app.work.demo:demo",
            "[--out DIR]",
            """\
Price 240 options by Monte Carlo, here, and compare them with Black-Scholes.

Writes the inputs and the results to demo-out/. Run it twice: the second time there is nothing left to do.""",
            """\
Example:
  waku demo""",
        ),
    ),
    GRID: (
        Command(
            "up",
            "wakugumi.app.serve.up:up",
            "[PORT] [--programs DIR] [--slots N] [--state DIR | --memory] [--groups G [--nodes N]] [OPTIONS]",
            """\
A leader and a worker on this machine, until you stop it.

The quickest grid there is: it runs the programs of one folder for everyone who can reach the port, which is nobody \
but this machine unless --host and --allow-open say otherwise. Accepted jobs survive it, as with `waku leader`.

With --groups it is the three tiers instead, to be tried with curl: a gateway at PORT, a leader for each group, and \
--nodes in each of them. Kill one of them and see: the others go on.""",
            """\
Examples:
  waku up --programs ./bin
  waku up --programs ./bin --memory
  waku up --programs ./bin --groups 2 --nodes 2
  waku up 5000 --slots 8 --host 0.0.0.0 --allow-open""",
        ),
        Command(
            "leader",
            "wakugumi.app.serve.leader:leader",
            "[PORT] [--state DIR | --memory] [--policy [PATTERN=]NAME]… [--program NAME] [--host HOST] [OPTIONS]",
            """\
A leader: takes jobs from clients and gives them to workers.

Accepted jobs survive it, also kill -9 and power loss: they stand in a journal in --state DIR, and the next leader on \
that folder goes on with them. Without --state each port has a folder of its own, and the log says which. With \
--memory, or with port 0 and no --state, there is no journal, and what is queued is gone with the leader.

--policy says which worker gets a job: the one with most free slots (most-credit, the default), each in its turn \
(round-robin), always the same for the same --key (sticky), or the least busy by slots and CPU (score). PATTERN=NAME \
says so for the subjects that match; the most specific pattern counts, and `calcA` means all below job.assign.calcA.

Files that do not fit a frame lie beside the journal, up to --blob-bytes, and come and go over HTTP on the same port; \
--blobs names a shared folder or a bucket instead, which clients and workers then use directly.

The same port takes jobs over HTTP (docs/operate/group.md). Jobs that name no program get --program, \
and of each client id at most --http-cap are in flight.

Prints its address once it listens; port 0 takes any free one. The first SIGTERM or Ctrl-C lets running jobs finish, \
the second ends it at once.""",
            """\
Examples:
  waku leader 5000
  waku leader 5000 --state /var/lib/wakugumi
  waku leader 5000 --memory
  waku leader 5000 --blobs s3://bucket/grid
  waku leader 5000 --policy round-robin --policy 'calcA=sticky'
  waku leader 5081 --program pricer         then: curl -F file=@in.csv -o out.zip localhost:5081/dispatch/night-7
  waku leader 5000 --host 10.0.0.1 --allow-open""",
        ),
        Command(
            "gateway",
            "wakugumi.app.serve.gateway:gateway",
            "[PORT] --group NAME=URL[,zone=Z][,weight=N]… [OPTIONS]",
            """\
Start a gateway: one HTTP door before several groups, each a leader with its workers and nodes.

PORT is 5000 by default. A job goes to the best group, and to the next one when that is full or gone; its \
answer is kept, so that the same id has the same answer. With several gateways on one --state folder any of them will \
do, and what one leaves behind the others finish. The first signal to stop lets those who wait have their answers.""",
            """\
Examples:
  waku gateway --group a=http://a:5081 --group b=http://b:5081
  waku gateway 5001 --group a=http://a:5081,zone=east --zone east --choice near
  waku gateway 5002 --group a=http://a:5081,weight=2 --state /srv/gateway""",
        ),
        Command(
            "worker",
            "wakugumi.app.serve.worker:worker",
            "HOST PORT [PATTERN] [--programs DIR] [--slots N] [OPTIONS]",
            """\
A worker: runs programs for a leader.

It runs what lies in --programs and nothing else, each job in a directory of its own below --jobs. PATTERN says which \
jobs it takes: `groupA`, `job.assign.calcA`, `job.assign.>` (all, the default), or several with commas. The first \
SIGTERM or Ctrl-C lets running jobs finish, the second ends it at once.""",
            """\
Examples:
  waku worker 127.0.0.1 5000 --programs ./bin
  waku worker grid 5000 groupA --slots 8 --name rack1-7""",
        ),
        Command(
            "node",
            "wakugumi.app.serve.node:node",
            "[--program NAME | --command 'NAME {input}'] [--programs DIR] [--http PORT] [--lines PORT] [OPTIONS]",
            """\
A node: runs programs for whoever speaks HTTP or lines.

A job is an id and one file. POST /run/{id} with the file as a form answers with a ZIP of what the program made; so \
does `JOB <id> <file name> <size>` and the bytes over plain TCP (docs/operate/node.md). HTTP is spoken on 5080 and \
lines on 9099, or both on one port. --program says what runs; it gets the input's path. A job that is sent again is \
not run again while its result is kept, also after a restart.

With --leader it is a worker too, over the same slots. With --tls-cert and --tls-key both ports speak TLS, and with \
--client-ca only to those who show a certificate. Prints where it listens. The first SIGTERM or Ctrl-C lets running \
jobs finish, the second ends it at once.""",
            """\
Examples:
  waku node --program pricer --programs ./bin
  waku node --command 'pricer --fast {input}' --programs ./bin --slots 8
  waku node --program pricer --http 8080 --lines 8080
  waku node --program pricer --leader grid:5000 --pattern calcA""",
        ),
        Command(
            "client",
            "wakugumi.app.work.sample_clients:client",
            "HOST PORT CLIENT_ID [DESIRED] [OPTIONS] [-- ARG…]",
            """\
Submit sample jobs to a leader and print their results.

Three jobs of the program calcA, unless the options say otherwise. DESIRED is how many may run at once.""",
            """\
Examples:
  waku client 127.0.0.1 5000 desk-1
  waku client 127.0.0.1 5000 desk-1 8 --program calcB --count 100""",
        ),
        Command(
            "clientx",
            "wakugumi.app.work.sample_clients:clientx",
            "CLIENT_ID HOST:PORT… [DESIRED_TOTAL] [OPTIONS] [-- ARG…]",
            """\
The same with several leaders at once.

DESIRED_TOTAL is how many jobs may run at once over all of them: each leader that serves has an even share. If one is \
lost for longer than 10 s (WAKU_GRACE), the others adopt its jobs.""",
            """\
Examples:
  waku clientx desk-1 127.0.0.1:5000 12
  waku clientx desk-1 a:5000 b:5000 c:5000 12 --count 100""",
        ),
    ),
    LOOK: (
        Command(
            "status",
            "wakugumi.app.admin.status:status",
            "[--leader HOST:PORT] [-o table|json|quiet]",
            """\
How the leader is, and what is queued where.

Of several leaders each is asked; what they say stands one below the other, in JSON as a list.""",
            """\
Examples:
  waku status
  waku status --leader grid:5000 -o json""",
        ),
        Command(
            "top",
            "wakugumi.app.admin.top:top",
            "[--every S] [--once] [--leader HOST:PORT] [-o table|json|quiet]",
            """\
A live view: workers and their slots, queues, rates, delays, and what failed last.

The leader is asked every second, or every --every S. q or Ctrl-C ends it. While the leader is away it says so, and \
goes on when it is back. Rates, waits (from accepted to assigned) and run times are those of the last minute; half of \
the jobs took at most p50, 99 of 100 at most p99. failed, again (given out once more) and dead count since the leader \
began. A group is the token after job.assign in its workers' patterns; * are workers for all groups.

Without a terminal, or with --once, it prints one picture and ends. With -o json it prints one line of JSON each time, \
until it is stopped.""",
            """\
Examples:
  waku top
  waku top --leader grid:5000 --every 5
  waku top --once
  waku top -o json --every 60""",
        ),
        Command(
            "jobs list",
            "wakugumi.app.admin.status:jobs_list",
            "[--state STATE] [--client ID] [--pattern PATTERN] [--limit N] [OPTIONS]",
            """\
Which jobs there are, the newest last.""",
            """\
Examples:
  waku jobs list --state running
  waku jobs list --client desk-1 -o quiet""",
        ),
        Command(
            "jobs show",
            "wakugumi.app.admin.status:jobs_show",
            "ID [OPTIONS]",
            """\
Where a job is.""",
            """\
Example:
  waku jobs show monday-run""",
        ),
        Command(
            "jobs story",
            "wakugumi.app.admin.status:jobs_story",
            "ID [OPTIONS]",
            """\
What happened to a job so far.""",
            """\
Example:
  waku jobs story monday-run""",
        ),
        Command(
            "jobs explain",
            "wakugumi.app.admin.status:jobs_explain",
            "ID [OPTIONS]",
            """\
Why a job is not running, or not done: from the scheduler's own state.""",
            """\
Example:
  waku jobs explain monday-run""",
        ),
        Command(
            "jobs cancel",
            "wakugumi.app.admin.status:jobs_cancel",
            "[ID…] [--client ID] [--pattern PATTERN] [--forget] [OPTIONS]",
            """\
Cancel jobs by id, or all of a client, or all whose subject matches a pattern.

What runs is ended, with everything that it started. Their clients hear that they were cancelled, also if they come \
back later; with --forget nothing is kept for them.""",
            """\
Examples:
  waku jobs cancel monday-run
  waku jobs cancel --client desk-1
  waku jobs cancel --client gone-for-good --forget
  waku jobs cancel --pattern 'job.assign.calcA.>'""",
        ),
        Command(
            "jobs wait",
            "wakugumi.app.admin.status:jobs_wait",
            "ID… [--out DIR] [--wait S] [OPTIONS]",
            """\
Wait for jobs that were submitted before, and show their results.

Exit code 1 if one of them failed, 6 if they take longer than --wait.""",
            """\
Examples:
  waku jobs wait monday-run
  waku jobs wait monday-run --out results --wait 60""",
        ),
        Command(
            "dead list",
            "wakugumi.app.admin.dead:dead_list",
            "[ID…] [--pattern PATTERN] [--reason REASON] [--limit N] [OPTIONS]",
            """\
Which jobs used up their attempts and wait for a person, the newest last.

A job dies when its worker is lost, does not answer or fails it time after time; a program's own non-zero exit is \
an answer, and no death, and so is a timeout. The leader keeps 10,000 dead jobs or 256 MiB of them; then the oldest \
go. Exit code 3 if an ID is not among the dead.""",
            """\
Examples:
  waku dead list
  waku dead list --reason worker-lost -o quiet
  waku dead list --pattern 'job.assign.calcA.>'""",
        ),
        Command(
            "dead show",
            "wakugumi.app.admin.dead:dead_show",
            "ID [OPTIONS]",
            """\
What became of each attempt of a dead job: where, when, how it ended, and what it said at last.""",
            """\
Example:
  waku dead show monday-run""",
        ),
        Command(
            "dead requeue",
            "wakugumi.app.admin.dead:dead_requeue",
            "[ID…] [--pattern PATTERN] [--reason REASON] [--all] [OPTIONS]",
            """\
Open dead jobs again, with all their attempts before them.

All that is said must hold of a job. Whoever then asks for it, as with `waku jobs wait`, gets the new result. Exit \
code 3 if an ID is not among the dead.""",
            """\
Examples:
  waku dead requeue monday-run
  waku dead requeue --reason worker-lost
  waku dead requeue --all""",
        ),
        Command(
            "dead drop",
            "wakugumi.app.admin.dead:dead_drop",
            "[ID…] [--pattern PATTERN] [--reason REASON] [--all] [OPTIONS]",
            """\
Forget dead jobs, chosen as in `waku dead requeue`.""",
            """\
Examples:
  waku dead drop monday-run
  waku dead drop --pattern 'job.assign.calcA.>' --reason disk""",
        ),
        Command(
            "caches put",
            "wakugumi.app.admin.caches:caches_put",
            "ID FILE|FOLDER… [--target PATTERN] [--within S] [--share X] [--pin] [OPTIONS]",
            """\
Put files on the workers beforehand, under an id; jobs then name them with --cached ID/NAME.

A file has its own name in the cache, or NAME with NAME=PATH; a folder stands for all files below it, hidden ones too. \
What is put goes to every worker whose patterns overlap --target, and to those that join later. Nothing under an id is \
ever overwritten: what is there is skipped, new names are added, and other content under the same name fails. So new \
content is a new id, such as dataset-v2. The same command again sends only what is missing.

Waits --within so many seconds for the workers, or until a --share of them, 0 to 1, has it. Exit code 1 if too few \
have it then.""",
            """\
Examples:
  waku caches put dataset-v1 data/
  waku caches put model-7 weights=run7/w.bin --target 'job.assign.gpu.>' --pin
  waku caches put dataset-v1 data/ --share 0.9 --within 60""",
        ),
        Command(
            "caches list",
            "wakugumi.app.admin.caches:caches_list",
            "[--limit N] [OPTIONS]",
            """\
Which caches there are, how large, on how many workers, and how often they were used.""",
            """\
Examples:
  waku caches list
  waku caches list -o quiet""",
        ),
        Command(
            "caches show",
            "wakugumi.app.admin.caches:caches_show",
            "ID [OPTIONS]",
            """\
What is in a cache, and which workers have it.

Exit code 3 if there is no such cache.""",
            """\
Example:
  waku caches show dataset-v1""",
        ),
        Command(
            "caches pin",
            "wakugumi.app.admin.caches:caches_pin",
            "ID [--off] [OPTIONS]",
            """\
Keep a cache until it is dropped: it is never evicted to make room.

With --off it may be evicted again, like any other. Exit code 3 if there is no such cache.""",
            """\
Examples:
  waku caches pin dataset-v1
  waku caches pin dataset-v1 --off""",
        ),
        Command(
            "caches drop",
            "wakugumi.app.admin.caches:caches_drop",
            "ID [OPTIONS]",
            """\
Forget a cache, at the leader and on all workers.

A job that still names it fails. Exit code 3 if there is no such cache.""",
            """\
Example:
  waku caches drop dataset-v1""",
        ),
        Command(
            "workers list",
            "wakugumi.app.admin.status:workers_list",
            "[OPTIONS]",
            """\
Who is connected, for which jobs, and how busy.""",
            """\
Example:
  waku workers list""",
        ),
        Command(
            "workers drain",
            "wakugumi.app.admin.status:workers_drain",
            "WORKER [OPTIONS]",
            """\
Give a worker no further jobs: what it runs may finish.""",
            """\
Example:
  waku workers drain rack1-7""",
        ),
        Command(
            "workers resume",
            "wakugumi.app.admin.status:workers_resume",
            "WORKER [OPTIONS]",
            """\
Give a drained worker jobs again.""",
            """\
Example:
  waku workers resume rack1-7""",
        ),
        Command(
            "store check",
            "wakugumi.app.admin.store:check",
            "[DIR | --state DIR] [OPTIONS]",
            """\
Read all of a leader's journal, and say what is in it and whether it is sound.

DIR is the leader's state folder; the leader may run meanwhile. Exit code 1 if something is damaged.""",
            """\
Examples:
  waku store check
  waku store check /var/lib/wakugumi -o json""",
        ),
        Command(
            "store backup",
            "wakugumi.app.admin.store:backup",
            "DIR FILE [OPTIONS]",
            """\
Copy a leader's journal to a new file, as it is at one moment.

The leader may run meanwhile. To go back to it, put FILE into an empty folder as journal.sqlite, and start a leader \
with that folder: it knows nothing of what happened since.""",
            """\
Example:
  waku store backup /var/lib/wakugumi monday.sqlite""",
        ),
        Command(
            "store repair",
            "wakugumi.app.admin.store:repair",
            "[DIR | --state DIR] [OPTIONS]",
            """\
Keep what can be read of a damaged journal, and say what cannot.

No leader may run on the folder. The damaged file is put aside under a name with the time, and nothing is deleted; a \
sound journal is left alone.""",
            """\
Example:
  waku store repair /var/lib/wakugumi""",
        ),
        Command(
            "drill",
            "wakugumi.app.drill.drill:drill",
            "[--jobs N] [--workers W] [--kill KINDS] [--times K] [--seed S] [OPTIONS]",
            """\
Kill leader, workers and client at random, and count what is lost.

Real processes on this machine, in a folder of their own: a leader, workers, and a client whose jobs leave a mark each \
time their program begins and ends. Each of them is killed (SIGKILL) or stopped for a while, at random from one seed, \
and brought back; the kills are spread over the jobs. Then the marks are counted: every accepted job must be finished, \
once in the eyes of the client, and a program may run again only if its worker was killed while it ran there.

Exit code 1 if anything was lost, delivered twice, or run again without need, or if there were fewer kills than asked \
for; the folder is kept then, and named.

With --groups it is a gateway with groups and nodes, reached by HTTP: a node, a leader, a whole group and the gateway \
are killed in turn while jobs are sent, and every job must be answered, the same when it is asked for again.""",
            """\
Examples:
  waku drill
  waku drill --jobs 5000 --kill leader --times 50
  waku drill --jobs 5000 --kill worker,client --times 50 --seed 7 --keep
  waku drill --groups 2 --nodes 2 --jobs 1000
  waku drill --leader-memory --kill leader      what a leader without a journal loses""",
        ),
    ),
}
