"""Access: commands that make keys, and use them."""
