"""A contender: the whole model in ONNX Runtime, with dynamic batching, under FastAPI.

`python -m loadtest.compare.one_graph_server BUNDLE GRAPH --port N --threads N`. The graph is made
from the same bundle by `loadtest.bench.one_graph`, so weights, kernels and precision are the same.
"""

import numpy as np
from tokenizers import Tokenizer

from loadtest.bench.inputs import padded
from loadtest.bench.one_graph_session import open_on_cpu
from loadtest.compare.batching import Batcher
from loadtest.compare.fastapi_server import serve, server_options
from serve.bundle.loader import load_bundle
from serve.runtime.ort_session import plain_options


def main() -> None:
    """Serve until SIGTERM."""
    options = server_options("one_graph_server", "bundle", "graph")
    bundle = load_bundle(options.bundle)
    manifest = bundle.manifest
    tokenizer = Tokenizer.from_file(str(bundle.tokenizer_path))
    tokenizer.enable_truncation(manifest.max_tokens)
    tokenizer.no_padding()
    graph = open_on_cpu(options.graph, plain_options(options.threads))
    batcher = Batcher(lambda batch: graph.run(padded(batch, manifest.pad_id)))

    async def classify(text: str) -> tuple[str, float]:
        logits = await batcher.logits(tokenizer.encode(text).ids)
        shares = np.exp(logits - logits.max())
        best = int(shares.argmax())
        return manifest.labels[best], float(shares[best] / shares.sum())

    serve(classify, options.port)


if __name__ == "__main__":
    main()
