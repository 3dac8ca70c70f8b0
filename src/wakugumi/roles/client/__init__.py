"""The client library.

`grid` is the asynchronous API, `blocking` its twin; `session` keeps their jobs alive, `files` reads and sends content.
"""
