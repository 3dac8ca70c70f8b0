"""Which part of a leader answers a peer's question? Its machine, that of its files, or its edge, which knows peers."""

from __future__ import annotations

from functools import partial

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.access.browser_links import AskLink
from wakugumi.core.access.key_questions import KeyQuestion
from wakugumi.core.access.known_as import AskMe, Degree, known_as
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.questions import CacheQuestion
from wakugumi.errors import Refused
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.access.keys import GridKeys
from wakugumi.roles.leader.effects import send_answer, send_no
from wakugumi.roles.leader.files.caches import LeaderCaches
from wakugumi.roles.leader.hub import Hub, Peer
from wakugumi.roles.leader.questions import Questions
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.control import read_question


class PeerQuestions:
    """The questions of all connections of one leader."""

    def __init__(self, hub: Hub, caches: LeaderCaches | None, questions: Questions, guard: AccessGuard) -> None:
        self._hub = hub
        self._guard = guard
        self._tasks = Tasks()
        self._caches = caches
        self._questions = questions
        self.disconnect = questions.disconnect

    def ask(self, peer: Peer, frame: Frame, degree: Degree) -> None:
        """`degree` is the proof that the peer's port asks for."""
        try:
            question = read_question(frame.payload)
            peer.access.check_question(question)
            if isinstance(question, AskMe):
                send_answer(peer, ev.SendAnswer(peer.conn, frame.msg_id, known_as(peer.access.identity, degree)))
                return
            if isinstance(question, AskLink):
                send_answer(peer, ev.SendAnswer(peer.conn, frame.msg_id, self._guard.new_link(peer.access.identity)))
                return
            if isinstance(question, KeyQuestion):
                work = partial(self._ask_about_keys, peer, frame.msg_id, question)
                self._tasks.start(peer.do("a question about keys", work), name="a question about keys")
                return
            event = ev.QuestionAsked(peer.conn, frame.msg_id, question, peer.access.sight)
            caches = self._caches if isinstance(question, CacheQuestion) else None
            self._questions.ask(self._hub.drive if caches is None else caches.drive, event, len(frame.payload))
        except Refused as no:
            send_no(peer, ev.SendNo(peer.conn, frame.msg_id, no.code, no.message))

    async def close(self) -> None:
        await self._tasks.close()

    async def _ask_about_keys(self, peer: Peer, ask_id: bytes, question: KeyQuestion) -> None:
        """The guard's keys answer; a change is on disk before."""
        keys = self._guard.keys
        try:
            if not isinstance(keys, GridKeys):
                raise Refused("no-authority", "this leader keeps no keys", "start it with --state DIR")
            send_answer(peer, ev.SendAnswer(peer.conn, ask_id, await keys.ask(question)))
        except Refused as no:
            send_no(peer, ev.SendNo(peer.conn, ask_id, no.code, no.message))
