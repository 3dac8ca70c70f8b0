"""An answer to `waku top`, with workers, subjects and failures."""

from __future__ import annotations

from wakugumi.app.show.top_view import Line, plain
from wakugumi.core.leader import answer_records as an

WAITED = an.Spread(1_000, 0.012, 0.043, 1.3)


RAN = an.Spread(1_000, 0.31, 2.2, 75.0)


def figures(running: int, ended: int, failed: int = 0) -> an.Figures:
    recent = an.Recent(57.0, 20.0, 20.0, 19.5, WAITED, RAN)
    return an.Figures(running, ended, ended - failed, failed, 4 * failed, failed, WAITED, RAN, recent)


def worker(number: int) -> an.WorkerRow:
    name = f"rack-{number}" if number else ""
    patterns = ["job.assign.calca.>", f"job.assign.calca.rack-{number}"]
    return an.WorkerRow(f"{number:08x}-0000", name, "busy", patterns, 20 - number % 21, number % 21, 0.5, 1.0)


def an_answer(workers: int = 3, subjects: int = 2, failures: int = 2) -> an.TopAnswer:
    rows = [an.SubjectRow(f"job.assign.calca.s{number}", 1_000, 3, figures(5, 2_000, 7)) for number in range(subjects)]
    status = an.StatusAnswer(
        up_s=7_200.0,
        workers=workers,
        slots_free=4,
        clients=1,
        queued=123_456,
        queued_bytes=10,
        backing_off=0,
        running=56,
        undelivered=0,
        submitted=9_000,
        finished_ok=8_000,
        finished_failed=14,
        redelivered=0,
        dead=0,
        letters=0,
        durable=True,
        disk_low=False,
        full=False,
        subjects=rows[:50],
        busiest=[an.ClientRow("desk-1", True, 64, 56, 70, 2_048)],
        slots=60,
        submitted_per_s=1_234.5,
        finished_per_s=99.9,
        subjects_total=subjects,
        groups=[an.GroupRow("calca", workers, 60, 4, 2_000, figures(56, 8_014, 14))],
        groups_total=1,
    )
    failed = [
        an.FailureRow("00112233-4455-6677-8899-aabbccddeeff", "calcA", "job.assign.calca.s0", "rack-1", "exit", 7.5)
    ] * failures
    return an.TopAnswer(status, [worker(number) for number in range(min(workers, 50))], workers, failed)


def shown(lines: list[Line]) -> list[str]:
    return [plain(line).rstrip() for line in lines]
