"""A client of the HTTP API, server processes, their metrics and their cost."""
