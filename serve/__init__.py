"""Everything that runs in production; imports neither torch nor transformers.

It is imported before ONNX Runtime and torch, which read the process's settings when they load.
"""

import os

for _name, _value in {
    # ONNX Runtime would look up its maker's collector, and keep an id and events in ~/.cache.
    "ORT_DISABLE_TELEMETRY": "1",
    # Threads of torch that wait would keep the cores from those that compute.
    "OMP_WAIT_POLICY": "PASSIVE",
}.items():
    os.environ.setdefault(_name, _value)
