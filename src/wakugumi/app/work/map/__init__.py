"""`waku map`: one job per input or set of parameters."""
