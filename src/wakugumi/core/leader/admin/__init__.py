"""Answers of a leader: lists, reasons and metrics, read from its state. Only `actions` changes that state."""
