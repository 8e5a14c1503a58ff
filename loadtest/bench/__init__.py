"""Benchmarks of segments, of the engine, and on a GPU."""
