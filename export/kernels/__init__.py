"""Rewrites of a graph for the kernels of ONNX Runtime's providers."""
