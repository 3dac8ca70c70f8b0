"""`waku status`: what is the state of a leader and of its queues?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from wakugumi.app.admin.ask import ask_each, show_each
from wakugumi.app.flags import with_settings
from wakugumi.app.options import Asking
from wakugumi.app.show.output import duration, fields_out, line_out, one, size, spread, table_out
from wakugumi.core.access.known_as import AskMe, KnownAs
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.leader import LIST_ROWS_MAX


@with_settings
def status(*, asking: Asking) -> int:
    """waku status [--leader HOST:PORT] [-o table|json|quiet]

    The last lines are about you: as whom the leader knows you, by which proof, and what you may do; and the proof that
    the leader asks for: none (open), a user of its machine (this user), keys over TLS, or certificates.

    Several leaders are shown one below the other, in JSON as a list.

    Examples:
      waku status
      waku status --leader grid:5000 -o json
    """
    how = asking.output
    told = ask_each(qu.AskStatus(), an.StatusAnswer, asking)
    kept = {} if how == "quiet" else _kept(asking)
    known = {} if how == "quiet" else _known(asking)
    beside = {
        each.leader: {"caches": kept.get(each.leader), "me": known.get(each.leader)}
        for each in told
        if each.answer is not None
    }
    show_each(told, asking, _show_status, lambda answer: ["full" if answer.full else "ok"], beside)
    if how == "table":
        _show_kept(kept, len(told) > 1)
        _show_known(known, len(told) > 1)
    return 0


def _show_status(answer: an.StatusAnswer) -> None:
    rows = [
        ("up", f"{duration(answer.up_s)}, {_how_durable(answer)}"),
        ("workers", f"{answer.workers}, {one(answer.slots_free, 'slot')} free"),
        ("last minute", f"{answer.submitted_per_s:.1f} jobs/s in, {answer.finished_per_s:.1f} jobs/s out"),
        ("clients", str(answer.clients)),
        ("queued", f"{one(answer.queued, 'job')}, {size(answer.queued_bytes)}{', full' if answer.full else ''}"),
        ("backing off", one(answer.backing_off, "job")),
        ("running", one(answer.running, "job")),
        ("finished", f"{answer.finished_ok:,} ok, {answer.finished_failed:,} failed, {answer.dead:,} of them dead"),
        ("redelivered", str(answer.redelivered)),
        ("not fetched", one(answer.undelivered, "result")),
    ]
    if answer.letters:
        rows.append(("dead letters", f"{answer.letters:,}: see `waku dead list`"))
    fields_out(rows)
    if answer.subjects:
        line_out()
        rows_by_subject = [
            (row.subject, f"{row.queued:,}", f"{row.figures.running:,}", str(row.workers), *_counted(row.figures))
            for row in answer.subjects
        ]
        table_out(("subject", "#queued", "#running", "#workers", *_COUNTED), rows_by_subject)
    if answer.groups:
        line_out()
        rows_by_group = [
            (
                row.group,
                f"{row.queued:,}",
                f"{row.figures.running:,}",
                str(row.workers),
                *_counted(row.figures),
            )
            for row in answer.groups
        ]
        table_out(("group", "#queued", "#running", "#workers", *_COUNTED), rows_by_group)
    if answer.busiest:
        line_out()
        rows_by_client = [
            (
                row.client,
                "here" if row.connected else "away",
                f"{row.unfinished:,}",
                f"{row.running} of {row.cap}",
                size(row.unfetched_bytes),
            )
            for row in answer.busiest
        ]
        table_out(("client", "is", "#unfinished", "#running", "#not fetched"), rows_by_client)


class KeptByLeader(msgspec.Struct, frozen=True):
    """Caches of a leader."""

    total: int
    """Caches."""
    bytes: int
    """Size of all their files."""
    hits: int
    """Requests for caches by jobs and workers."""
    blobs: an.BlobCounters


def _kept(asking: Asking) -> dict[str, KeptByLeader]:
    """By leader, without leaders of versions that have no caches or other ones."""
    try:
        told = ask_each(qu.AskCaches(LIST_ROWS_MAX), an.CachesAnswer, asking)
    except (Refused, PeerError):
        return {}
    answers = {each.leader: each.answer for each in told if each.answer is not None}
    return {
        leader: KeptByLeader(answer.total, answer.bytes, sum(row.hits for row in answer.rows), answer.blobs)
        for leader, answer in answers.items()
    }


def _show_kept(kept: Mapping[str, KeptByLeader], several: bool) -> None:
    for leader, what in kept.items():
        sent = what.blobs
        if what.total or sent.blobs:
            title = f"caches of {leader}" if several else "caches"
            fetched = (
                f"{size(sent.from_leader_bytes)} from the leader and {size(sent.from_workers_bytes)} from each other"
            )
            line_out()
            line_out(f"{title}: {what.total:,}, {size(what.bytes)}, {one(what.hits, 'hit')}; workers fetched {fetched}")
            if sent.store_budget_bytes:
                budget = size(sent.store_budget_bytes)
                held = size(sent.store_bytes)
                line_out(f"content at the leader, when last counted: {held} (--blob-bytes {budget})")


def _known(asking: Asking) -> dict[str, KnownAs]:
    """By leader, without leaders of versions that cannot tell."""
    try:
        told = ask_each(AskMe(), KnownAs, asking)
    except (Refused, PeerError):
        return {}
    return {each.leader: each.answer for each in told if each.answer is not None}


def _show_known(known: Mapping[str, KnownAs], several: bool) -> None:
    for leader, me in known.items():
        at = f" at {leader}" if several else ""
        proof = _PROOFS.get(me.proof, f"by {me.proof}")
        line_out()
        line_out(f"access{at}: {me.degree}; you are {me.name}, {proof}, with the role {me.role}")
        line_out(f"you may {'; '.join(me.may)}")


_PROOFS: Final = {
    "user": "as a user of the leader's machine",
    "key": "by a key",
    "certificate": "by a certificate",
    "cookie": "by a link for a browser",
    "open": "without a proof",
}
_COUNTED: Final = ("#ok", "#failed", "#redelivered", "#dead", "#delay p50/p95/p99", "#run time p50/p95/p99")


def _counted(figures: an.Figures) -> tuple[str, ...]:
    """Columns that the rows of subjects and of groups share."""
    return (
        f"{figures.finished_ok:,}",
        f"{figures.finished_failed:,}",
        f"{figures.redelivered:,}",
        f"{figures.dead:,}",
        spread(figures.dispatch_delay),
        spread(figures.run_time),
    )


def _how_durable(answer: an.StatusAnswer) -> str:
    if not answer.durable:
        return "in memory only"
    if answer.stalled:
        return f"nothing is committed: {answer.stalled}"
    return "its disk is nearly full: nothing is accepted" if answer.disk_low else "with a journal"
