"""The gateway: takes jobs over HTTP, keeps them in the shared store and forwards them to groups."""
