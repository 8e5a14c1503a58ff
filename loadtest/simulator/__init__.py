"""The engine's scheduler on simulated segments, arrivals and exits.

Deterministic by seed, without threads, clock or ONNX Runtime.
"""
