"""The whole model on MLServer: adaptive batches of up to 32 requests, in the server's process."""

import json
import os
import socket
import sys
import tempfile
from pathlib import Path

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse
from whole_model import MAX_ROWS, WAIT_S, WholeModel


class Classifier(MLModel):
    """Classifies the texts of the first input; requests of a batch come merged."""

    async def load(self) -> bool:
        """Load the model."""
        self.model = WholeModel()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a batch."""
        found = self.model.classify(StringCodec.decode_input(payload.inputs[0]))
        labels = StringCodec.encode_output("label", [result["label"] for result in found])
        return InferenceResponse(model_name=self.name, outputs=[labels])


def free_port() -> int:
    """Return a port for gRPC or metrics, which have ports of their own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    ports = {"http_port": int(sys.argv[1]), "grpc_port": free_port(), "metrics_port": free_port()}
    settings = {"host": "127.0.0.1", "parallel_workers": 0, "debug": False, **ports}
    batches = {"max_batch_size": MAX_ROWS, "max_batch_time": WAIT_S}
    model = {"name": "offramp", "implementation": "mlserver_server.Classifier", **batches}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))
    os.environ["PYTHONPATH"] = os.path.dirname(__file__)
    command = (sys.executable, "-m", "mlserver.cli.main", "start", str(folder))
    os.execv(sys.executable, command)
