"""The leader: which jobs exist, which worker runs them, and which messages go to clients and workers?

`machine` is the state machine with the four doors, driven by `roles/leader/leader.py`. `lifecycle` changes jobs,
`clients` and `workers` know the peers, `results` and `dead_letters` keep ended jobs, `step_builder` collects the
effects of a step.
"""
