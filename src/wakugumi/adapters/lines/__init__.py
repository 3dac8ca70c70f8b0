"""Jobs as lines of text over a plain socket: the server and the client."""
