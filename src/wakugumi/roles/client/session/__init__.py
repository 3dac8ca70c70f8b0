"""A client's jobs over connections that are lost and made anew.

`session` drives `core/client/failover.py`; `book`, `room` and `connections` are its parts.
"""
