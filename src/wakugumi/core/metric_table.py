"""Which metrics does each role publish? One constant per metric: name, meaning, kind, labels. (SPEC O2)

`/metrics` has the meanings as HELP lines, and `tools/metrics_page.py` makes docs/reference/metrics.md of this file. The
word after `wakugumi_` says which role has the metric: `leader`, `run` (worker and node), `node` or `gateway`.
"""

from __future__ import annotations

from typing import Final

from wakugumi.core.metrics import COARSE_S, counter, gauge, histogram

LEADER_JOBS_SUBMITTED: Final = counter("wakugumi_leader_jobs_submitted_total", "Jobs accepted.", "subject")
LEADER_JOBS_FINISHED: Final = counter(
    "wakugumi_leader_jobs_finished_total", "Jobs with a result, by its status.", "group", "subject", "status"
)
LEADER_JOBS_REDELIVERED: Final = counter(
    "wakugumi_leader_jobs_redelivered_total", "Lost attempts after which the job was queued again.", "group", "subject"
)
LEADER_JOBS_DEAD: Final = counter(
    "wakugumi_leader_jobs_dead_total", "Jobs that used up their attempts.", "group", "subject"
)
LEADER_JOBS_RUNNING: Final = gauge("wakugumi_leader_jobs_running", "Jobs assigned to a worker.", "group", "subject")
LEADER_DISPATCH_DELAY: Final = histogram(
    "wakugumi_leader_dispatch_delay_seconds",
    "From accepted, or queued again, to assigned; the sum is an estimate.",
    *("group", "subject"),
    bounds=COARSE_S,
)
LEADER_RUN: Final = histogram(
    "wakugumi_leader_run_seconds",
    "From assigned to the answer that became the result; the sum is an estimate.",
    *("group", "subject"),
    bounds=COARSE_S,
)
LEADER_JOBS_QUEUED: Final = gauge(
    "wakugumi_leader_jobs_queued", "Jobs that wait for a worker; the longest queues by name.", "subject"
)
LEADER_QUEUED_BYTES: Final = gauge("wakugumi_leader_queued_bytes", "Bytes of the requests of unfinished jobs.")
LEADER_JOBS_BACKING_OFF: Final = gauge("wakugumi_leader_jobs_backing_off", "Jobs that wait for their next attempt.")
LEADER_RESULTS_UNDELIVERED: Final = gauge(
    "wakugumi_leader_results_undelivered", "Results that their client has not received."
)
LEADER_DEAD_LETTERS: Final = gauge("wakugumi_leader_dead_letters", "Dead jobs that wait for a person's decision.")
LEADER_WORKERS: Final = gauge("wakugumi_leader_workers", "Workers that are connected or may re-attach.")
LEADER_WORKERS_RESTING: Final = gauge(
    "wakugumi_leader_workers_resting", "Workers that get no jobs for a while: out of order, or they answered busy."
)
LEADER_RESTS: Final = counter("wakugumi_leader_rests_total", "Times that a worker began to rest.")
LEADER_JOBS_DECLINED: Final = counter(
    "wakugumi_leader_jobs_declined_total", "Jobs that a worker or node gave back before it began them."
)
LEADER_SLOTS: Final = gauge("wakugumi_leader_slots", "Slots of all workers.")
LEADER_SLOTS_FREE: Final = gauge("wakugumi_leader_slots_free", "Slots that can be given a job now.")
LEADER_CLIENTS: Final = gauge("wakugumi_leader_clients", "Connected clients.")
LEADER_FULL: Final = gauge("wakugumi_leader_full", "1 while the queue is full and further jobs are refused.")
LEADER_DISK_LOW: Final = gauge("wakugumi_leader_disk_low", "1 while the journal's disk is nearly full.")
LEADER_COMMITS_STALLED: Final = gauge(
    "wakugumi_leader_commits_stalled", "1 while the journal has committed no write for 5 s or more."
)
LEADER_UP: Final = counter("wakugumi_leader_up_seconds_total", "Seconds since the leader was started.")
LEADER_CONNECTIONS: Final = gauge("wakugumi_leader_connections", "Connections of frames and of HTTP.")
LEADER_HTTP_RECEIVING: Final = gauge("wakugumi_leader_http_receiving", "Inputs that are being received over HTTP.")
LEADER_HTTP_BUSY: Final = counter(
    "wakugumi_leader_http_busy_total", "HTTP jobs refused for now, by error code.", "code"
)

RUN_SLOTS: Final = gauge("wakugumi_run_slots", "Slots: jobs that may run at the same time.")
RUN_SLOTS_FREE: Final = gauge("wakugumi_run_slots_free", "Slots that a caller of this machine can have now.")
RUN_JOBS_RUNNING: Final = gauge("wakugumi_run_jobs_running", "Jobs that run now, of all callers.")
RUN_JOBS_STARTED: Final = counter("wakugumi_run_jobs_started_total", "Jobs begun.")
RUN_JOBS_FINISHED: Final = counter("wakugumi_run_jobs_finished_total", "Jobs that ended, by status.", "status")
RUN_FAILURES: Final = counter("wakugumi_run_failures_total", "Jobs that failed, by error code.", "reason")
RUN_EXIT_CODES: Final = counter(
    "wakugumi_run_exit_codes_total",
    "Programs that ended, by exit code; 128 + N for a program ended by signal N.",
    "exit_code",
)
RUN_BUSY: Final = counter("wakugumi_run_busy_total", "Callers refused because all slots were taken.")
RUN_TIME: Final = histogram("wakugumi_run_seconds", "Run time of programs.", bounds=COARSE_S)

NODE_RECEIVE_SLOTS: Final = gauge("wakugumi_node_receive_slots", "Inputs that may be received at the same time.")
NODE_RECEIVING: Final = gauge("wakugumi_node_receiving", "Inputs that are being received.")
NODE_ANSWERING: Final = gauge("wakugumi_node_answering", "Callers that wait for a job or for the end of its answer.")
NODE_RECEIVE_BUSY: Final = counter(
    "wakugumi_node_receive_busy_total", "Callers refused because too many were sending inputs."
)

GATEWAY_JOBS_QUEUED: Final = gauge("wakugumi_gateway_jobs_queued", "Jobs of all gateways that no group has.")
GATEWAY_JOBS_RUNNING: Final = gauge("wakugumi_gateway_jobs_running", "Jobs of all gateways that a group has.")
GATEWAY_JOBS_KEPT: Final = gauge("wakugumi_gateway_jobs_kept", "Ended jobs that are kept.")
GATEWAY_KEPT_BYTES: Final = gauge("wakugumi_gateway_kept_bytes", "Bytes of the answers of ended jobs.")
GATEWAY_QUEUE_BYTES: Final = gauge(
    "wakugumi_gateway_queue_bytes", "Bytes of the bodies of unfinished asynchronous jobs, of all gateways."
)
GATEWAY_FLIGHTS: Final = gauge("wakugumi_gateway_flights", "Jobs that this gateway forwards.")
GATEWAY_SUBMITS: Final = gauge("wakugumi_gateway_submits", "Submissions that are being served.")
GATEWAY_WATCHERS: Final = gauge("wakugumi_gateway_watchers", "Clients that receive events of jobs.")
GATEWAY_TAKEN_OVER: Final = counter("wakugumi_gateway_taken_over_total", "Jobs taken over from dead gateways.")
GATEWAY_STRANDED: Final = counter(
    "wakugumi_gateway_stranded_total",
    "Jobs that no task handled, queued again. Above 0 is a fault of the gateway: see its log.",
)
GATEWAY_JOBS: Final = counter("wakugumi_gateway_jobs_total", "Jobs that this gateway forwarded, by outcome.", "outcome")
GATEWAY_JOB_TIME: Final = histogram("wakugumi_gateway_job_seconds", "From the first group to the outcome.")
GATEWAY_FAILOVERS: Final = counter(
    "wakugumi_gateway_failovers_total", "Jobs that went on to another group, by reason.", "group", "why"
)
GATEWAY_BUSY: Final = counter("wakugumi_gateway_busy_total", "Submissions refused for now, by reason.", "why")
GATEWAY_GROUP_FREE_SLOTS: Final = gauge(
    "wakugumi_gateway_group_free_slots", "Free slots of a group, by its last poll.", "group"
)
GATEWAY_GROUP_UP: Final = gauge(
    "wakugumi_gateway_group_up", "1 for a group that gets jobs, 0 for one that is gone or rests.", "group"
)
