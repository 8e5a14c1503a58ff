"""Bar 7: what a serving process holds in memory, and whether that grows.

`python -m loadtest.bench.engine.memory BUNDLE REQUESTS THREADS` is the process that is measured: it
answers requests of random lengths with the fp32 variant and prints the memory it holds, as JSON.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from loadtest.bench.engine.bars import Bar, at_most
from loadtest.bench.engine_driver import driving, rows_of
from loadtest.bench.errors import BenchFailed
from loadtest.bench.inputs import random_texts
from loadtest.bench.loaded_bundle import vocabulary_size
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Manifest
from serve.classifier.variant import model_shape
from serve.engine.row import Row
from serve.runtime.cpu_runner import CpuRunner

_WHAT_SIZE = "resident memory after requests of 1 to 512 tokens"
_WHAT_GROWTH = "the same / after a tenth of the requests"
_WEIGHTS, _BASE_MB = 1.3, 300.0
_GROWTH = 1.03
_IN_FLIGHT = 128
_PER_BATCH = 500
# Most rows leave at the first exit, to save time; the others visit every segment.
_DEEPER_SHARE = 0.03


def memory(bundle: Bundle, requests: int, num_threads: int) -> list[Bar]:
    """Let a process of its own answer so many requests.

    Raises:
        BenchFailed: it did not.
    """
    command = [sys.executable, "-m", __name__, str(bundle.folder), str(requests), str(num_threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(f"the process that measures memory failed:\n{done.stderr[-2000:]}")
    early_mb, late_mb = json.loads(done.stdout)
    weights_mb = bundle.weights_path("fp32").stat().st_size / 1e6
    return bars_of(f"{bundle.name}, {requests:,} requests", weights_mb, early_mb, late_mb)


def bars_of(case: str, weights_mb: float, early_mb: float, late_mb: float) -> list[Bar]:
    """Return the bars on what the process held after a tenth of the requests, and after all."""
    return [
        at_most(_WHAT_SIZE, case, late_mb, _WEIGHTS * weights_mb + _BASE_MB, "MB"),
        at_most(_WHAT_GROWTH, case, late_mb / early_mb, _GROWTH),
    ]


def probe(folder: Path, requests: int, num_threads: int) -> list[float]:
    """Return the resident memory, in MB, after a tenth of the requests, and after all."""
    bundle, draw, resident = load_bundle(folder), np.random.default_rng(0), []
    # Read first, because reading the tokenizer takes memory for a while.
    vocabulary = vocabulary_size(bundle)
    chain = CpuRunner(bundle, "fp32", num_threads)
    with driving(chain, model_shape(bundle.manifest)) as driver:
        for num in (requests // 10, requests - requests // 10):
            for rows in _batches(draw, num, bundle.manifest, vocabulary):
                driver.run(rows, _IN_FLIGHT)
            resident.append(psutil.Process().memory_info().rss / 1e6)
    return resident


def _batches(
    draw: np.random.Generator, num: int, manifest: Manifest, vocabulary: int
) -> Iterator[list[Row]]:
    """Yield rows of 1 token up to the model's limit, a few hundred at a time."""
    exits, longest = manifest.exit_layers, manifest.max_tokens
    for start in range(0, num, _PER_BATCH):
        size = min(_PER_BATCH, num - start)
        layers = np.full(size, exits[0])
        deeper = draw.random(size) < _DEEPER_SHARE
        layers[deeper] = draw.choice(exits, int(deeper.sum()))
        texts = random_texts(draw.integers(1, longest + 1, size), vocabulary, seed=start)
        yield rows_of(model_shape(manifest), texts, layers.tolist())


if __name__ == "__main__":
    print(json.dumps(probe(Path(sys.argv[1]), *map(int, sys.argv[2:]))))
