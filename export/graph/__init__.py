"""From a captured PyTorch program to a fused ONNX graph."""
