"""Benchmarks of segments, engine and GPU."""
