"""Export: from a multi-exit model to the bundle that the server loads."""

import serve  # noqa: F401 - it has the settings of torch and ONNX Runtime
