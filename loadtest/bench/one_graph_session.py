"""The same model as one graph, in ONNX Runtime; written by `loadtest.bench.one_graph`."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from loadtest.bench.inputs import Feeds
from serve.runtime.ort_session import RUN_OPTIONS, quick_run


class OneGraph:
    """The whole model in one session."""

    def __init__(self, path: Path, options: ort.SessionOptions) -> None:
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]
        self._run = quick_run(self._session)

    def run(self, feeds: Feeds) -> NDArray[np.float32]:
        """Return the last head's logits, (rows, labels), by a call as the CPU runner makes it."""
        logits: NDArray[np.float32]
        logits, *_ = self._run(self._outputs, {n: feeds[n] for n in self._inputs}, RUN_OPTIONS)
        return logits
