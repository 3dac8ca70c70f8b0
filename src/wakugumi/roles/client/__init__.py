"""The client library.

`grid` is the asynchronous API, `blocking` its twin, `session` drives `core/client/failover.py`.
"""
