"""One port that speaks frames, HTTP and lines: the first bytes of a connection decide."""
