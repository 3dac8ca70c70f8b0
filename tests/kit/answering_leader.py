"""A leader in a thread that answers real commands as it was told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import msgspec

from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.leader import questions as qu
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import read_question
from wakugumi.wire.messages.hello import Welcome
from wakugumi.wire.messages.job import JobResult, write_refusal
from wakugumi.wire.messages.payload import encode

DEADLINE_S = 60.0


class AnsweringLeader:
    """It answers every question as it was told to, and serves one client after the other."""

    def __init__(self) -> None:
        self.asked: list[qu.Question] = []
        self.answer: msgspec.Struct | Callable[[qu.Question], msgspec.Struct] | None = None
        """None is a refusal: `no`."""
        self.no = ("not-dead", "the job is queued, and not among the dead letters")
        """Code and text with which questions are refused."""
        self.denial = ""
        """Why no client may join; empty: all may."""
        self.refusal: tuple[str, str] | None = None
        """Code and text with which jobs are refused; None: they are done at once."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            with peer:
                self.peer = peer
                peer.settimeout(DEADLINE_S)
                decoder = fr.Decoder()
                decoder.trust()
                while data := peer.recv(65536):
                    for frame in decoder.feed(data):
                        peer.sendall(self._reply(frame))

    def _reply(self, frame: fr.Frame) -> bytes:
        if frame.type == fr.HELLO_CLIENT and self.denial:
            return fr.encode(fr.REFUSAL, payload=write_refusal("denied", self.denial))
        if frame.type == fr.HELLO_CLIENT:
            return fr.encode(fr.WELCOME, payload=encode(Welcome("1")))
        if frame.type == fr.SUBMIT_JOB:
            if self.refusal is not None:
                return fr.encode(fr.REFUSAL, corr_id=frame.msg_id, payload=write_refusal(*self.refusal))
            done = encode(JobResult(show_job_id(JobId(frame.msg_id)), stdout="done\n", exit_code=0))
            receipt = fr.encode(fr.RECEIPT, payload=frame.msg_id)
            return receipt + fr.encode(fr.RESULT, frame.msg_id, frame.msg_id, payload=done)
        if frame.type != fr.ASK:
            return b""
        question = read_question(frame.payload)
        self.asked.append(question)
        if self.answer is None:
            no = write_refusal(*self.no)
            return fr.encode(fr.ASK, corr_id=frame.msg_id, subject="refused", payload=no)
        answer = self.answer(question) if callable(self.answer) else self.answer
        return fr.encode(fr.ASK, corr_id=frame.msg_id, payload=encode(answer))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
