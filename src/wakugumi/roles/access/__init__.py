"""Access: the guard of a role's ports."""
