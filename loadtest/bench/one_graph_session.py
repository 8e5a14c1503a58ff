"""The whole model in one ONNX Runtime session. `loadtest.bench.one_graph` writes the file."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from loadtest.bench.inputs import Inputs
from serve.runtime.ort_session import RUN_OPTIONS, quick_run


class OneGraph:
    """A session whose output is the last head's logits."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self._inputs = [value.name for value in session.get_inputs()]
        self._outputs = [session.get_outputs()[0].name]
        self._run = quick_run(session)

    def run(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return (rows, labels) logits on the host, by a call as the CPU runner makes it."""
        named = inputs._asdict()
        logits: NDArray[np.float32]
        (logits,) = self._run(
            self._outputs, {name: named[name] for name in self._inputs}, RUN_OPTIONS
        )
        return logits


def open_on_cpu(path: Path, options: ort.SessionOptions) -> OneGraph:
    """Return the graph in this file on the CPU provider."""
    return OneGraph(ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
