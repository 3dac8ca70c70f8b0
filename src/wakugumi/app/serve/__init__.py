"""Commands that serve: leader, worker, up, node, gateway; what their options mean."""
