"""From a PyTorch module to a fused ONNX graph."""
