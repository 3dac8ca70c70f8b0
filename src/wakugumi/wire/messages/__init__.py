"""Payloads of frames (SPEC F4–F9), by the chapters of docs/reference/protocol.md: hello, jobs, control, caches.

Names are PascalCase on the wire and snake_case here; unknown fields are ignored, missing ones have defaults. An
unreadable payload raises PeerError (a hello, an id list) or Refused (one job of a good peer), with a shortened text.
`payload` has shared functions, `references` the blobs of jobs and results.
"""
