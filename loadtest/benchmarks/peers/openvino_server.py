"""OpenVINO behind FastAPI: NNCF's int8 of the same weights, the batching of `fastapi_server.py`."""

import os
from pathlib import Path
from typing import Any

import openvino
from fastapi_server import serve
from whole_model import WholeModel

SETTINGS = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}


class OpenVino(WholeModel):
    """Classifies texts with one thread."""

    def open(self, _: Path) -> None:
        """Load the graph that `openvino_prepare.py` has written."""
        graph = Path(os.environ["PREPARED"]) / "int8.xml"
        self._model = openvino.Core().compile_model(graph, "CPU", SETTINGS)
        self._inputs = [given.any_name for given in self._model.inputs]

    def logits(self, known: dict[str, Any]) -> Any:
        """Return the logits of a batch, whose inputs are given by name."""
        return self._model({name: known[name] for name in self._inputs})[0]


if __name__ == "__main__":
    serve(OpenVino())
