"""What frames say (SPEC F4–F9), by the chapters of docs/reference/protocol.md: hello, jobs, control, caches.

Names are PascalCase on the wire and snake_case here; unknown fields are ignored, missing ones have defaults. A payload
that cannot be read raises PeerError (a hello, an id list) or Refused (one job of a good peer), with a text that is cut.
`payload` has what the chapters share, `references` names the blobs of jobs and results.
"""
