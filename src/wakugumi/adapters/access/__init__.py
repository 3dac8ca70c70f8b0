"""Proofs of who a peer is: users of this machine, keys, certificates, and the files that hold them (SPEC O1)."""
