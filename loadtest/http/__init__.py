"""A client of the HTTP API, server processes and what they cost."""
