"""ONNX Runtime: devices, sessions, and the runners that the engine calls."""
