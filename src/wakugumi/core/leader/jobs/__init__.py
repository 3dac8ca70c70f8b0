"""The life of a leader's jobs: accepted, run, moved, ended, kept, forgotten.

`lifecycle` changes their states, as the table in `states` allows.

    verdict   a FAILED result of the leader itself: dead, cancelled or refused
    part      one worker's job of a broadcast, which no other worker can take
    claim     a client's request for a job by its id alone; also a job that a worker holds and no client has submitted
    shun      a job avoids workers that could not start it, while another worker may
"""
