"""The whole model in one ONNX Runtime session. `loadtest.bench.one_graph` writes the file."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from loadtest.bench.inputs import Ids, Inputs
from serve.bundle.manifest import ATTENTION_LENGTHS, ATTENTION_MASK, LENGTHS, SHARES
from serve.runtime.ort_session import RUN_OPTIONS, quick_run
from serve.runtime.step_inputs import attention_lengths, shares


class OneGraph:
    """A session whose output is the last head's logits."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self._inputs = [value.name for value in session.get_inputs()]
        self._outputs = [session.get_outputs()[0].name]
        self._run = quick_run(session)

    def run(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return (rows, labels) logits on the host, by a call as the CPU runner makes it."""
        named = inputs._asdict() | self._of_mask(inputs.attention_mask)
        logits: NDArray[np.float32]
        (logits,) = self._run(
            self._outputs, {name: named[name] for name in self._inputs}, RUN_OPTIONS
        )
        return logits

    def _of_mask(self, mask: Ids) -> dict[str, NDArray[Any]]:
        """Return what a graph for GPUs takes in the place of the mask."""
        if ATTENTION_MASK in self._inputs:
            return {}
        lengths = mask.sum(axis=1, dtype=np.int32)
        on_cpu = self._session.get_providers()[0] == "CPUExecutionProvider"
        placed = attention_lengths(lengths, mask.shape[1], "cpu" if on_cpu else "cuda")
        each = shares(mask, lengths).astype(np.float16)
        return {LENGTHS: lengths, ATTENTION_LENGTHS: placed, SHARES: each}


def open_on_cpu(path: Path, options: ort.SessionOptions) -> OneGraph:
    """Return the graph in this file on the CPU provider."""
    return OneGraph(ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
