"""A client's jobs over connections that come and go.

`session` drives `core/client/failover.py`; `book`, `room` and `connections` are its parts.
"""
