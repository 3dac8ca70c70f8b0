"""Costs of connections: strangers before their hello, half frames, and peers that are ahead of the disk."""
