"""Offramp beside the servers that people use: `python -m loadtest.benchmarks`."""
