"""A gateway as a simulated process: the real machine, between callers, groups and a store that all can fail.

Like `roles/gateway/gateway.py` with other hands. An act takes a while; one that is abandoned may have been done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.sim.checker import Broken
from tests.sim.gateways.group import GroupSays
from tests.sim.process import Process

from wakugumi.core.access.identity import Sight
from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, Perform
from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.groups import GroupAt, Groups
from wakugumi.core.gateway.machine import GatewayMachine
from wakugumi.core.gateway.rows import DIGEST_FORM, Content
from wakugumi.core.gateway.state import GatewayBounds
from wakugumi.core.ids import JobId
from wakugumi.core.step import ERROR, LogLine
from wakugumi.errors import Lost, PeerError

if TYPE_CHECKING:
    from tests.sim.gateways.caller import Call
    from tests.sim.gateways.world import GatewayWorld

BOUNDS = GatewayBounds(try_s=40.0, silence_s=5.0)
STORE = (
    *(ev.GetRow, ev.AddRow, ev.ReplaceRow, ev.RemoveRow, ev.FlushRows, ev.HoldLease, ev.IsHeld),
    *(ev.FindOrphans, ev.FindOpen, ev.FindOldest, ev.CountRows, ev.TidyStore),
)
WRITES = (ev.AddRow, ev.ReplaceRow, ev.HoldLease)


class _Body:
    """The body of a request here."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_whole = False
        self.has_failed = False
        self.readers: list[Callable[[], None]] = []

    def end(self, *, failed: bool) -> None:
        self.is_whole, self.has_failed = not failed, failed
        readers, self.readers = self.readers, []
        for read in readers:
            read()

    @property
    def digest(self) -> str:
        return DIGEST_FORM + self.call.body.decode() if self.is_whole else ""


class _TryHere:
    def __init__(self, now: float) -> None:
        self.moved_at = now
        self.says: GroupSays | None = None
        self.is_whole = False
        self.readers: list[Callable[[bytes | None], None]] = []

    def end(self, data: bytes | None) -> None:
        """Readers get the answer, or are cut off."""
        readers, self.readers = self.readers, []
        for read in readers:
            read(data)


class GatewayProcess(Process):
    """One gateway, over all its lives."""

    kind = "gateway"
    machine: GatewayMachine

    def __init__(self, world: GatewayWorld, number: int, zone: str) -> None:
        super().__init__(world, f"gateway{number}")  # type: ignore[arg-type]
        self.here = world
        self.zone = zone
        self.calls: dict[int, Call] = {}
        self.bodies: dict[int, _Body] = {}
        self.tries: dict[int, _TryHere] = {}
        self.held: dict[int, _TryHere] = {}
        """Closed tries whose readers wait for the last byte."""
        self.opened: dict[int, bytes | int] = {}
        """Answers that were opened for requests: their bytes, or the try that receives them."""
        self.abandoned: set[int] = set()
        self.polled_at: dict[str, float] = {}
        self._count = 0

    def born(self) -> None:
        world = self.here
        self.calls, self.bodies, self.tries, self.held, self.opened = {}, {}, {}, {}, {}
        self.abandoned = set()
        self.polled_at = dict.fromkeys((group.name for group in world.groups), self.clock.now)
        groups = [GroupAt(group.name, f"http://{group.name}", group.zone) for group in world.groups]
        self.machine = GatewayMachine(
            f"{self.name}.{self.life}",
            Groups(groups, world.choice, self.zone),
            BOUNDS,
            job_s_of=lambda _query: 10.0,
            chance=world.random.random,
            now=self.clock.now,
        )
        world.store.rows.hold(self.machine.state.owner, BOUNDS.lease_s)
        self.post(ev.GatewayStarts())

    def died(self, power: bool) -> None:
        self.machine.close()
        self.here.judge.gateway_died(self, power=power)
        for call in list(self.calls.values()):
            call.lost()
        for one in (*self.tries.values(), *self.held.values()):
            one.end(None)

    def has_work(self) -> bool:
        return self.alive and bool(self.machine.flights.by_job or self.calls)

    # Callers.

    def submit(self, call: Call, *, is_async: bool) -> int:
        number = self._enter(call)
        body = self.bodies[number] = _Body(call)
        want, size, received = call.want, len(call.body), None
        if number % 2 and not is_async and size <= 9:  # It has arrived with its head.
            body.end(failed=False)
            received = ev.BodyReceived(True, size, body.digest)
        is_short = self.here.store.is_full
        told = is_async, "", "", {}, 10.0, size, is_short, received, want.client, want.sight
        self.post(ev.JobSubmitted(number, want.job, want.name, *told))
        return number

    def ask(self, call: Call, question: str, sight: Sight | None) -> int:
        number = self._enter(call)
        self.post(ev.JobAsked(number, call.want.job, call.want.name, question, sight))
        return number

    def leave(self, number: int, *, says_so: bool) -> None:
        """The client of this request goes."""
        if says_so and number in self.calls:
            self.post(ev.CallerLeft(number))

    def _enter(self, call: Call) -> int:
        self._count += 1
        self.calls[self._count] = call
        return self._count

    # Effects.

    def do(self, effect: Any) -> None:
        match effect:
            case Perform():
                self._perform(effect.number, effect.act)
            case Abandon():
                self.abandoned.add(effect.number)
            case ev.ReplyTo():
                self._reply(effect.request, effect.answer)
            case ev.DropBody():
                body = self.bodies.pop(effect.request)
                body.end(failed=not body.is_whole)
            case ev.CloseTry():
                one = self.tries.pop(effect.number, None)
                if one is not None and one.is_whole:
                    self.held[effect.number] = one
                elif one is not None:
                    one.end(None)
            case ev.ReleaseAnswer():
                one = self.held.pop(effect.number, None) or self.tries.get(effect.number)
                if one is not None:
                    one.is_whole = False
                    one.end(self._content(one) if effect.is_kept else None)
            case ev.DropFiles():
                for name in effect.names:
                    self.here.store.files.pop(name, None)
            case LogLine() if effect.level >= ERROR:
                self.here.judge.error(f"{effect.text} {effect.error!r}")
            case _:
                pass

    def _reply(self, number: int, answer: ev.Answer) -> None:
        call = self.calls.pop(number)
        opened = self.opened.pop(number, None)
        if isinstance(answer, ev.OpenedAnswer) and answer.data is not None:
            opened = answer.data
        late_s = 0.03 * self.here.random.random()  # On its way, whatever becomes of the gateway.
        if not isinstance(answer, ev.OpenedAnswer):
            self.clock.after(late_s, lambda: call.answered(answer))
        elif isinstance(opened, bytes):
            self.clock.after(late_s, lambda: call.got(opened))
        else:
            one = self.tries.get(opened or 0) or self.held.get(opened or 0)
            if one is None:
                self.clock.after(late_s, call.lost)
            else:
                one.readers.append(lambda data: call.lost() if data is None else call.got(data))

    # Acts.

    def _later(self, call: Callable[[], None], seconds: float = 0.03) -> None:
        """Unless this life ends before."""
        life = self.life
        self.clock.after(
            seconds * self.here.random.random(), lambda: call() if self.alive and life == self.life else None
        )

    def _perform(self, number: int, act: Act[Any]) -> None:
        if isinstance(act, STORE):
            self._store(number, act)
            return
        match act:
            case ev.BeginBody():
                self._later(lambda: self._receive(number, act.request, is_begin=True))
            case ev.FinishBody():
                self._later(lambda: self._receive(number, act.request, is_begin=False), 3.0)
            case ev.KeepBody():
                body = self.bodies[act.request].call.body
                self._later(lambda: self._answer(number, self._kept(act.job, body, is_large=len(body) > 9)))
            case ev.FinishAnswer():
                self._later(lambda: self._finish(number, act.number), 3.0)
            case ev.KeepAnswer():
                data = self._content(self.tries[act.number])
                self._later(lambda: self._answer(number, self._kept(act.job, data, is_large=True)))
            case ev.OpenAnswer():
                self._later(lambda: self._answer(number, self._open(act)))
            case ev.Dispatch():
                self._dispatch(number, act)
            case ev.SinceMoved():
                one = self.tries.get(act.number)
                self._answer(number, 0.0 if one is None else self.clock.now - one.moved_at)
            case ev.CancelAt():
                group = self.here.group_called(act.group)
                if not group.hangs:
                    self._later(lambda: group.cancel(act.name), 0.2)
                    self._later(lambda: self._answer(number, None), 0.3)
            case ev.PollGroup():
                self._poll(number, act.group)
            case ev.SendState():
                self.calls[act.request].sent(act.row)
                self._answer(number, None)
            case ev.FindGone():
                gone = tuple(one for one in act.requests if one not in self.calls or self.calls[one].has_left)
                self._answer(number, gone)
            case ev.ListFiles():
                found = [(name, JobId(bytes.fromhex(name.partition("-")[0]))) for name in self.here.store.files]
                self._answer(number, found if self.here.store.are_old else [])
            case ev.RemoveFiles():
                for name in act.names:
                    self.here.store.files.pop(name, None)
                self._answer(number, None)
            case _:
                self._answer(number, None)

    def _answer(self, number: int, answer: Any) -> None:
        if number not in self.abandoned:
            self.post(Answered(number, answer))
            if self.here.faults.random() < 0.01:
                self.post(Answered(number, answer))

    def _fail(self, number: int, error: Exception) -> None:
        if number not in self.abandoned:
            self.post(ActFailed(number, error))

    def _store(self, number: int, act: Act[Any]) -> None:
        """Applied after a moment, and answered a moment later: an act that was abandoned may have been done."""
        world, store, rows, owner = self.here, self.here.store, self.here.store.rows, self.machine.state.owner

        def apply() -> None:
            if number in self.abandoned and world.faults.random() < 0.5:
                return
            try:
                ends = isinstance(act, ev.ReplaceRow) and act.new.is_final
                store.check(writes=isinstance(act, WRITES), ends=ends)
                answer: Any = None
                match act:
                    case ev.GetRow():
                        answer = rows.get(act.job)
                    case ev.AddRow():
                        answer = rows.add(act.row)
                        world.judge.row_owned(answer[0])
                    case ev.ReplaceRow():
                        answer = rows.replace(act.old, act.new)
                        if answer is not None:
                            world.judge.row_changed(act.old, answer)
                    case ev.RemoveRow():
                        answer = rows.remove(act.row)
                    case ev.HoldLease():
                        rows.hold(owner, act.lease_s)
                    case ev.IsHeld():
                        answer = rows.is_held(act.owner)
                    case ev.FindOrphans():
                        answer = rows.orphans(act.most, owner)
                    case ev.FindOpen():
                        answer = rows.open_jobs(owner, act.most, act.after)
                    case ev.FindOldest():
                        answer = rows.oldest(act.most, act.age_s)
                    case ev.CountRows():
                        answer = rows.totals()
                    case ev.FlushRows():
                        snapshot = store.snapshot()
                        self._later(lambda: (store.flushed(snapshot), self._answer(number, None))[0], 0.1)
                        return
            except Broken:
                raise
            except Exception as error:
                refused = error
                self._later(lambda: self._fail(number, refused))
                return
            self._later(lambda: self._answer(number, answer), 0.005)

        self._later(apply, 0.01 + store.slow_s)

    def _receive(self, number: int, request: int, *, is_begin: bool) -> None:
        body = self.bodies.get(request)
        if body is None:
            return
        call = body.call
        if call.has_left or (call.is_cut and not is_begin):
            body.end(failed=True)
            self._fail(number, Lost("the sender is gone", "dead"))
            return
        if is_begin and len(call.body) > 9:
            self._answer(number, ev.BodyReceived(False, 9))
            return
        body.end(failed=False)
        self._answer(number, ev.BodyReceived(True, len(call.body), body.digest))

    def _kept(self, job: JobId, data: bytes, *, is_large: bool) -> Content:
        if not is_large:
            return Content(len(data), data)
        return Content(len(data), None, self.here.store.keep(job, data))

    def _content(self, one: _TryHere) -> bytes:
        assert one.says is not None
        return one.says.content

    def _open(self, act: ev.OpenAnswer) -> bool:
        if isinstance(act.body, int):
            if act.body not in self.tries and act.body not in self.held:
                return False
            self.opened[act.request] = act.body
            return True
        data = act.body.data if act.body.data is not None else self.here.store.files.get(act.body.file)
        if data is None:
            return False
        self.opened[act.request] = data
        return True

    def _poll(self, number: int, name: str) -> None:
        self.polled_at[name] = self.clock.now
        group = self.here.group_called(name)
        if not group.alive:
            self._later(lambda: self._fail(number, Lost("nobody listens", "refused")))
        elif self.here.faults.random() < group.fails:
            errors = [PeerError("this is no capacity"), RecursionError("nested too deeply")]
            error = self.here.faults.choice(errors)
            self._later(lambda: self._fail(number, error))
        elif not group.hangs:
            self._later(lambda: self._answer(number, group.capacity))

    def _dispatch(self, number: int, act: ev.Dispatch) -> None:
        one = self.tries[act.number] = _TryHere(self.clock.now)
        group = self.here.group_called(act.group)
        self.here.judge.sent(self, group, act)

        life, sent_early = self.life, False

        def says(answer: GroupSays) -> None:
            if life == self.life:
                self._later(lambda: self._heard(number, act, one, answer), 0.05)

        def send() -> None:
            nonlocal sent_early
            if number in self.abandoned:
                return
            body = self.bodies.get(act.request)
            if act.content is not None:
                data = act.content.data if act.content.data is not None else self.here.store.files.get(act.content.file)
            elif body is None or body.has_failed:
                data = None
            elif not body.is_whole:
                sent_early = True
                body.readers.append(send)
                return
            else:
                data = body.call.body
            one.moved_at = self.clock.now
            if data is None:
                self._fail(number, ev.NoBodyLost("the body is gone"))
            elif act.as_file and sent_early and body is not None and body.call.has_odd_end:
                self._fail(number, Lost("the file has another size", "dead"))
            else:
                self.here.judge.counts["files without a form" if act.as_file else "forms"] += 1
                group.dispatch(act.path.removeprefix("/dispatch/"), data, says, is_file=act.as_file)

        self._later(send)

    def _heard(self, number: int, act: ev.Dispatch, one: _TryHere, says: GroupSays) -> None:
        if number in self.abandoned or act.number not in self.tries:
            return
        one.moved_at = self.clock.now
        one.says = says
        if says.status == 0:
            self._fail(number, Lost("the connection ended", says.why))
            return
        self.post(ev.HeadCame(act.number))
        body = self.bodies.get(act.request)
        digest = "" if body is None else body.digest
        size = len(says.content) + says.missing
        if says.status != 200:
            reply = ev.GroupReply(says.status, {}, None, None, says.code, says.code, "", None, digest)
        else:
            is_small = hash_of(says.content) % 2 == 0
            content = Content(len(says.content), says.content) if is_small else None
            reply = ev.GroupReply(200, {"Waku-Status": "OK"}, size, None, "", "", "", content, digest)
        self._answer(number, reply)

    def _finish(self, number: int, try_number: int) -> None:
        one = self.tries.get(try_number)
        if one is None or one.says is None:
            return
        one.moved_at = self.clock.now
        if one.says.missing:
            self._fail(number, Lost("the answer ended early", "dead"))
            return
        one.is_whole = True
        self._answer(number, len(one.says.content))


def hash_of(data: bytes) -> int:
    """The same in every process."""
    return sum(data)
