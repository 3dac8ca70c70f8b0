"""HTTP/1.1: the server, its connections and pages, the client, bodies on their way to disk."""
