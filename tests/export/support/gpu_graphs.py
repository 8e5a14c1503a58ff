"""Graphs for GPUs run on the CPU provider, which takes lengths alone."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export.chain.gpu_segments import GpuSegment
from serve.runtime.step_inputs import attention_lengths, shares
from tests.export.support.graphs import open_graph

_ELEMENTS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class Run(NamedTuple):
    """What one segment gives."""

    hidden: NDArray[np.floating]
    said: list[NDArray[np.float32]]


class GpuGraphs:
    """Sessions over bodies and heads."""

    def __init__(self, segments: Sequence[GpuSegment]) -> None:
        self._sessions = [(open_graph(body), open_graph(head)) for body, head in segments]

    def run(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> list[Run]:
        """Run all rows through all segments."""
        lengths = mask.sum(axis=1, dtype=np.int32)
        feeds = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "lengths": lengths}
        feeds["attention_lengths"] = attention_lengths(lengths, ids.shape[1], "cpu")
        feeds["shares"] = shares(mask, lengths)
        found = []
        for body, head in self._sessions:
            (feeds["hidden"],) = _run(body, feeds)
            found.append(Run(feeds["hidden"], _run(head, feeds)))
        return found


def _run(session: ort.InferenceSession, feeds: dict[str, NDArray]) -> list[NDArray]:
    taken = {value.name: value.type for value in session.get_inputs()}
    fitting = {
        name: feeds[name].astype(_ELEMENTS.get(kind, feeds[name].dtype))
        for name, kind in taken.items()
    }
    return session.run(None, fitting)
