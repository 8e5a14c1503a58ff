"""Multi-exit models in PyTorch: definition, training, evaluation, import, the shipped zoo."""

import serve  # noqa: F401 - it has the settings of torch and ONNX Runtime
