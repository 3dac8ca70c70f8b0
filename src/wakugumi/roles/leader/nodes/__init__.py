"""Nodes that a leader knows by address: workers of its machine, reached over HTTP."""
