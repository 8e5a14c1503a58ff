"""The whole model on infinity's ONNX engine: the same int8 graph, batches of up to 32 texts."""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import onnxruntime as ort
from whole_model import MAX_ROWS


class OneThread(ort.InferenceSession):
    """A session with one thread, for which infinity has no option."""

    def __init__(
        self, graph: str, sess_options: ort.SessionOptions | None = None, **others: object
    ) -> None:
        options = sess_options or ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        super().__init__(graph, sess_options=options, **others)


ort.InferenceSession = OneThread
from infinity_emb.cli import cli  # noqa: E402 - it takes the session's class when imported

if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    checkpoint = Path(os.environ["CHECKPOINT"])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(checkpoint / name, folder)
    config = json.loads((checkpoint / "config.json").read_text())
    config["architectures"] = ["BertForSequenceClassification"]
    (folder / "config.json").write_text(json.dumps(config))
    for file in Path(os.environ["MODEL"]).glob("one_graph.*"):
        shutil.copy(file, folder)
    os.environ |= {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_LOG_LEVEL": "warning"}
    os.chdir(folder)  # it finds the graph by its bare name only
    options = {"engine": "optimum", "device": "cpu", "batch-size": MAX_ROWS, "port": sys.argv[1]}
    options |= {
        "host": "127.0.0.1",
        "model-id": ".",
        "served-model-name": "offramp",
        "log-level": "warning",
    }
    # Warming up is with texts that are longer than the model's, which its classifier cuts nowhere.
    flags = ("--no-model-warmup", *(f"--{name}={value}" for name, value in options.items()))
    sys.argv = ["infinity_emb", "v2", *flags]
    cli()
