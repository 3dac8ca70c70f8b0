"""Nodes that a leader knows by address: asked over HTTP, and workers to the machine."""
