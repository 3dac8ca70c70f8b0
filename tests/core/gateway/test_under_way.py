"""Does a queue hold each job once, and is an outcome told once?"""

from __future__ import annotations

from tests.kit.gateway_desk import GatewayDesk
from tests.kit.gateway_jobs import JOB, NAME

from wakugumi.core.gateway.bodies import Body
from wakugumi.core.gateway.forward import Parcel
from wakugumi.core.gateway.outcomes import GONE, NoGroup
from wakugumi.core.gateway.rows import GatewayJob
from wakugumi.core.gateway.under_way import Flight, JobQueue
from wakugumi.core.ids import JobId


def test_a_job_is_in_line_once_and_in_its_order() -> None:
    queue = JobQueue()
    one, two = JobId(b"1" * 16), JobId(b"2" * 16)
    for job in (one, two, one):
        queue.append(job)
    assert (len(queue), one in queue) == (2, True)
    assert queue.popleft() == one
    assert one not in queue
    queue.append(one)
    assert [queue.popleft(), queue.popleft()] == [two, one]


def test_an_outcome_that_is_taken_back_makes_way_for_another() -> None:
    state = GatewayDesk().machine.state
    body = Body(state, 1, None)
    row = GatewayJob(job=JOB, name=NAME, owner="me")
    flight = Flight(state, row, Parcel(NAME, NAME, "", {}, 1.0, None, body, None), body)
    flight.take_back()
    flight.outcome.keep(GONE)
    flight.outcome.keep(NoGroup("the first counts"))
    assert flight.outcome.value == GONE
    flight.take_back()
    flight.outcome.keep(NoGroup("now"))
    assert flight.outcome.value == NoGroup("now")
    assert flight.request == ""
    body.digest = "2:x"
    assert flight.request == "2:x"
