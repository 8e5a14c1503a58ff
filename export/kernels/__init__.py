"""Rewriting a fused graph for the kernels of ONNX Runtime's providers."""
