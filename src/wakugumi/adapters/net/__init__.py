"""Frames over sockets: links, compression, TLS, and the gate that closes strangers."""
