"""The rows that gateways share: the interface, and SQLite behind it."""
