"""Offramp beside what people use instead, on one machine: `python -m loadtest.compare BUNDLE`."""
