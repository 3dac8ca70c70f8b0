"""What does a gateway decide? `machine` is the state machine with the four doors, driven by `roles/gateway/gateway.py`.

`requests` answers clients, `flights` carries jobs, `forward` goes from group to group, `tries` watches jobs at groups,
`housekeeping` takes over and tidies, `groups` chooses. Jobs are flows (`core/flows.py`); all that outlives the process
is in the rows of the shared store (`rows`).
"""
