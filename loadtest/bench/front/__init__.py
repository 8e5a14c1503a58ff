"""What a request costs around the model: `python -m loadtest.bench.front BUNDLE`."""
