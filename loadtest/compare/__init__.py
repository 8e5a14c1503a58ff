"""Offramp beside other servers: `python -m loadtest.compare BUNDLE`."""
