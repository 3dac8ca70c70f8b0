"""Jobs that come to a leader by HTTP: the pages, and their callers as clients of the machine."""
