"""How a client keeps its jobs while leaders come and go.

`failover` is the machine, driven by `roles/client/session`; its parts are `jobs`, `replies`, `claims`, `questions` and
`leaders`. `stages` says where a job can be.
"""
