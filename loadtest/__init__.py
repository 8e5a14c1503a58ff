"""Load tests and demonstrations against a running server."""
