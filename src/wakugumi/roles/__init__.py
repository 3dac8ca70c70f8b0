"""RUNS. A state machine and its adapters make a process: leader, worker, node, gateway, client, embedded grid."""
