"""How a client keeps its jobs while leaders connect and disconnect.

`failover` is the machine, driven by `roles/client/session`; its parts are `jobs`, `replies`, `claims`, `questions` and
`leaders`. `stages` lists the states of a job.

    share      a leader's part of the client's cap
    stranded   job sent to a leader whose connection was lost; it waits until the grace is over
    adopt      to run a stranded job at another leader, under the same id
"""
