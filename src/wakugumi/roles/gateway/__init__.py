"""The gateway: takes jobs over HTTP, keeps them in the shared store and forwards them to groups.

row         all that the gateways of one store know of a job
owner       of a row: the gateway that forwards its job, as long as its lease holds
flight      one job that a gateway forwards, with all callers that wait for it there
fail over   to send a job to the next group, because one is full or gone
take over   to forward the jobs of a dead gateway
spool       where a body is while it passes: received once, read by every try
deserted    of a group: it has no workers
"""
