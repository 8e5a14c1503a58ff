"""The load test: `python -m loadtest.load BUNDLE`."""
