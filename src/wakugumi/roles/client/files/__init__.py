"""A client's files: inputs are read and uploaded, results downloaded."""
