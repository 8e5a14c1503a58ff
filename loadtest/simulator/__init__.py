"""The engine's scheduler against simulated segments, arrivals and exits.

Deterministic by seed, without threads, clock or ONNX Runtime, so a change of the scheduler can be
judged on a million requests and on devices that are not at hand.
"""
