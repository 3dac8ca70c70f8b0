"""How a client keeps its jobs while leaders come and go.

`failover` is the machine, driven by `roles/client/session`; its parts are `jobs`, `replies`, `claims`, `questions` and
`leaders`. `stages` says where a job can be.

    share      the part of a client's cap that one of its leaders gets
    stranded   of a job: sent to a leader whose connection was lost; it waits until the grace is over
    adopt      to do a stranded job with another leader, under the same id
"""
