"""A contender: the whole model in ONNX Runtime, with dynamic batching, under FastAPI.

`python -m loadtest.compare.one_graph_server BUNDLE GRAPH --port N --threads N`; the graph is made
by `loadtest.bench.one_graph` from the same bundle, so weights, kernels and precision are the same.
"""

import argparse
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Tokenizer

from loadtest.compare.batching import Batcher, Ids
from loadtest.compare.fastapi_server import serve
from serve.bundle.loader import load_bundle
from serve.bundle.manifest import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from serve.runtime.ort_session import plain_options


class WholeModel:
    """One session with ONNX Runtime's own settings, exact in int8 as ours is."""

    def __init__(self, graph: Path, num_threads: int, pad_id: int) -> None:
        options = plain_options(num_threads)
        self._session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._inputs = {value.name for value in self._session.get_inputs()}
        self._pad_id = pad_id

    def run(self, batch: list[Ids]) -> NDArray[np.float32]:
        """Return (rows, labels) logits for the ids of some texts."""
        lengths = np.array([len(ids) for ids in batch])
        mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        padded = np.full(mask.shape, self._pad_id, np.int64)
        for row, ids in enumerate(batch):
            padded[row, : len(ids)] = ids
        feeds = {INPUT_IDS: padded, ATTENTION_MASK: mask, TOKEN_TYPE_IDS: np.zeros_like(padded)}
        used = {name: feed for name, feed in feeds.items() if name in self._inputs}
        logits: NDArray[np.float32] = self._session.run(None, used)[0]
        return logits


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.compare.one_graph_server")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("graph", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    wanted = parser.parse_args()
    manifest = load_bundle(wanted.bundle).manifest
    tokenizer = Tokenizer.from_file(str(wanted.bundle / "tokenizer.json"))
    tokenizer.enable_truncation(manifest.max_tokens)
    tokenizer.no_padding()
    batcher = Batcher(WholeModel(wanted.graph, wanted.threads, manifest.pad_id).run)

    async def classify(text: str) -> tuple[str, float]:
        logits = await batcher.logits(tokenizer.encode(text).ids)
        shares = np.exp(logits - logits.max())
        best = int(shares.argmax())
        return manifest.labels[best], float(shares[best] / shares.sum())

    serve(classify, wanted.port)


if __name__ == "__main__":
    main()
