"""What does an act of a flow cost (`core/flows.py`), in a task and without one? `.venv/bin/python bench/acts.py`

One flow performs acts one after the other, each answered by a coroutine that does not wait: with `first_step`
(`adapters/loop/acts.py`), and as a task. The two take turns; a figure is the median of the rounds, with the lowest and
the highest.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from wakugumi.adapters.loop.acts import ActPerformer, first_step
from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.loop.event_loop import run
from wakugumi.core.flows import Act, Answered, FlowDo, FlowEvent, Flows
from wakugumi.core.step import Step

ACTS = 20_000
ROUNDS = 9


class Ask(Act[int], frozen=True):
    number: int


class Asker:
    """A machine with one flow."""

    def __init__(self) -> None:
        self._flows = Flows(0.0)
        self.ended = self._flows.start(self._ask, name="ask").ended

    def handle(self, events: Sequence[FlowEvent], now: float) -> Step[None, FlowDo]:
        for event in events:
            self._flows.hear(event)
        return Step((), self._flows.run(now))

    def tick(self, now: float) -> Step[None, FlowDo]:
        return self.handle((), now)

    def wake_at(self) -> float | None:
        return None

    def check(self) -> None:
        self._flows.check()

    async def _ask(self) -> None:
        for number in range(ACTS):
            await Ask(number)


async def _answer(act: Act[Any]) -> int:
    assert isinstance(act, Ask)
    return act.number


async def _measure(perform: Callable[[Act[Any]], Any]) -> float:
    """CPU time of one act, in microseconds."""
    machine = Asker()
    over = asyncio.Event()
    machine.ended.when_kept(over.set)

    def do(effects: Sequence[FlowDo]) -> None:
        for effect in effects:
            acts.do(effect)

    drive: Drive[FlowEvent, None, FlowDo] = Drive(machine, do, name="acts")
    acts = ActPerformer(perform, drive.post)
    begun_at = time.process_time()
    drive.post(Answered(0, None))
    await over.wait()
    taken_s = time.process_time() - begun_at
    await acts.close()
    drive.close()
    return 1e6 * taken_s / ACTS


def main() -> None:
    taken: dict[str, list[float]] = {"in a task": [], "without a task": []}
    for _ in range(ROUNDS):
        taken["in a task"].append(run(_measure(_answer)))
        taken["without a task"].append(run(_measure(lambda act: first_step(_answer(act)))))
    for name, each in taken.items():
        print(f"an act {name:<16} {median(each):5.1f} µs ({min(each):.1f}..{max(each):.1f})")


if __name__ == "__main__":
    main()
