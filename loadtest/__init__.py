"""Load tests and demonstrations against a running server."""

import serve  # noqa: F401 - it has the settings of torch and ONNX Runtime
