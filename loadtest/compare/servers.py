"""The other contenders' servers: a small FastAPI app under uvicorn around one model.

`python -m loadtest.compare.servers pipeline MODEL --port N --threads N`: the transformers pipeline,
one text after the other. It is the bundle's checkpoint with its last head alone: PyTorch, fp32,
fused attention, the fast tokenizer.

`python -m loadtest.compare.servers one-graph BUNDLE GRAPH --port N --threads N`: the whole model in
ONNX Runtime, with dynamic batching. `loadtest.bench.one_graph` makes the graph from the same
bundle, so weights, kernels and precision are the same.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import uvicorn
from fastapi import FastAPI
from numpy.typing import NDArray
from pydantic import BaseModel
from tokenizers import Tokenizer

from loadtest.bench.inputs import padded
from loadtest.bench.whole_model import OneGraph, next_batch
from serve.bundle.loader import load_bundle
from serve.engine.scheduler import BatchLimits
from serve.runtime.ort_session import plain_options

# Only when the model was idle does the first request wait, and so long.
WINDOW_S = 0.001
LIMITS = BatchLimits(max_rows=32, max_tokens=32 * 512)

# Returns the label of one text and the label's probability.
Classify: TypeAlias = Callable[[str], Awaitable[tuple[str, float]]]
Ids: TypeAlias = list[int]
# Returns the logits of some texts, (rows, labels), of their ids.
RunBatch: TypeAlias = Callable[[list[Ids]], NDArray[np.float32]]


class Question(BaseModel):
    """A text to classify, or several."""

    inputs: str | list[str]


class Batcher:
    """Gathers requests while the model works; runs batches one after the other, in a thread."""

    def __init__(self, run: RunBatch) -> None:
        self._run = run
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[tuple[Ids, asyncio.Future[NDArray[np.float32]]]] = []
        self._arrived = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def logits(self, ids: Ids) -> NDArray[np.float32]:
        """Return the logits of one text, (labels,)."""
        if self._loop is None:
            self._loop = asyncio.create_task(self._work())
        answer: asyncio.Future[NDArray[np.float32]] = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, answer))
        self._arrived.set()
        return await answer

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                await asyncio.sleep(WINDOW_S)
            await self._one_batch()

    async def _one_batch(self) -> None:
        lengths = np.array([len(ids) for ids, _ in self._waiting])
        chosen = set(next_batch(lengths, LIMITS).tolist())
        batch = [item for place, item in enumerate(self._waiting) if place in chosen]
        self._waiting = [i for place, i in enumerate(self._waiting) if place not in chosen]
        loop = asyncio.get_running_loop()
        try:
            rows = await loop.run_in_executor(self._thread, self._run, [ids for ids, _ in batch])
        except Exception as error:
            for _, answer in batch:
                answer.set_exception(error)
            return
        for (_, answer), row in zip(batch, rows, strict=True):
            if not answer.cancelled():
                answer.set_result(row)


def one_graph(bundle_folder: Path, graph: Path, threads: int) -> Classify:
    """Return the whole model in dynamic batches."""
    bundle = load_bundle(bundle_folder)
    manifest = bundle.manifest
    tokenizer = Tokenizer.from_file(str(bundle.tokenizer_path))
    tokenizer.enable_truncation(manifest.max_tokens)
    tokenizer.no_padding()
    session = OneGraph(graph, plain_options(threads))
    batcher = Batcher(lambda batch: session.run(padded(batch, manifest.pad_id)))

    async def classify(text: str) -> tuple[str, float]:
        logits = await batcher.logits(tokenizer.encode(text).ids)
        shares = np.exp(logits - logits.max())
        best = int(shares.argmax())
        return manifest.labels[best], float(shares[best] / shares.sum())

    return classify


def pipeline(folder: Path, threads: int) -> Classify:
    """Return the transformers pipeline, which classifies one text at a time."""
    import torch
    from transformers import PreTrainedTokenizerFast
    from transformers import pipeline as transformers_pipeline

    from loadtest.compare.last_head import LastHeadOnly
    from models.multi_exit import MultiExitModel

    torch.set_num_threads(threads)
    model = LastHeadOnly(MultiExitModel.load(folder).eval()).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ask = transformers_pipeline(
        "text-classification", model=model, tokenizer=tokenizer, device="cpu"
    )
    thread = ThreadPoolExecutor(1)  # more would share the same cores

    async def classify(text: str) -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        (found,) = await loop.run_in_executor(thread, lambda: ask(text, truncation=True))
        return found["label"], found["score"]

    return classify


def serve(classify: Classify, port: int) -> None:
    """Serve one model on 127.0.0.1 until SIGTERM, as Offramp's API does without exits."""
    app = FastAPI()

    @app.get("/health/ready")
    async def ready() -> dict[str, Any]:
        return {"status": "ok"}

    @app.post("/v1/classify")
    async def answer(question: Question) -> dict[str, Any]:
        texts = question.inputs
        if isinstance(texts, str):
            found = [await classify(texts)]
        else:
            found = await asyncio.gather(*map(classify, texts))
        return {"results": [{"label": label, "score": score} for label, score in found]}

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


def main() -> None:
    """Serve one model until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.compare.servers")
    parser.add_argument("kind", choices=("pipeline", "one-graph"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    load: Callable[..., Classify] = pipeline if options.kind == "pipeline" else one_graph
    serve(load(*options.files, options.threads), options.port)


if __name__ == "__main__":
    main()
