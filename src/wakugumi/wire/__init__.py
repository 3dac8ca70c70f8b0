"""SPEAKS. Bytes to values and back: `frame` cuts the stream, `message` reads what is inside. Still no sockets."""
