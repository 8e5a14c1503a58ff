"""The whole model on BentoML: adaptive batches of up to 32 texts, one worker."""

import os
import sys

import bentoml
from whole_model import MAX_ROWS, WholeModel


@bentoml.service(workers=1, traffic={"timeout": 60, "max_concurrency": 1000})
class Classifier:
    """Classifies batches of texts; a request is a list of them, and so is its answer."""

    def __init__(self) -> None:
        self.model = WholeModel()

    @bentoml.api(
        route="/v1/classify", batchable=True, max_batch_size=MAX_ROWS, max_latency_ms=60_000
    )
    def classify(self, inputs: list[str]) -> list[dict]:
        """Answer a batch."""
        return self.model.classify(inputs)


if __name__ == "__main__":
    os.environ["BENTOML_DO_NOT_TRACK"] = "True"
    where = ("--host", "127.0.0.1", "--port", sys.argv[1])
    os.chdir(os.path.dirname(__file__))
    command = ("-m", "bentoml", "serve", "bentoml_server:Classifier", *where)
    os.execv(sys.executable, (sys.executable, *command))
