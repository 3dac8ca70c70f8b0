"""Nodes that a leader knows by address: is a node well, how many jobs may it get, and what becomes of each?

`machine` is the state machine of one node, with the four doors, driven by `roles/leader/nodes/remote_node.py`. For the
leader's machine it is a worker. `health` decides about free slots and rests, `jobs` about jobs at the node, `unwanted`
about jobs that the node should end.
"""
