"""SPEAKS. Bytes to values and back: `frame` cuts the stream, `messages` reads the payloads. Still no sockets."""
