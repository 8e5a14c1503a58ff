"""A process that answers requests of random lengths and prints the memory it holds, as JSON.

python -m loadtest.bench.engine.memory_probe BUNDLE PRECISION REQUESTS THREADS
"""

import argparse
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.bench.engine_driver import driving, rows_of
from loadtest.bench.inputs import random_texts
from loadtest.bench.loaded_bundle import vocabulary_size
from serve.bundle.loader import load_bundle
from serve.bundle.manifest import Manifest
from serve.classifier.ladder import model_shape
from serve.engine.row import Row
from serve.runtime.cpu_runner import CpuRunner

_STATUS = Path("/proc/self/status")
_IN_FLIGHT = 128
_PER_BATCH = 500
# Most rows leave at the first exit, to save time; the others visit every segment.
_DEEPER_SHARE = 0.03


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path)
    parser.add_argument("precision")
    parser.add_argument("requests", type=int)
    parser.add_argument("threads", type=int)
    options = parser.parse_args()
    print(json.dumps(probe(options.bundle, options.precision, options.requests, options.threads)))


def probe(folder: Path, precision: Any, requests: int, num_threads: int) -> dict[str, Any]:
    """Return the resident memory, in MB, after loading, after some of the requests, and all."""
    bundle = load_bundle(folder)
    # Read first, because reading the tokenizer takes memory for a while.
    vocabulary = vocabulary_size(bundle)
    chain = CpuRunner(bundle, precision, num_threads)
    marks = sorted({requests // 10, requests // 2, requests})
    resident = [(0, resident_mb())]
    with driving(chain, model_shape(bundle.manifest)) as driver:
        draw = np.random.default_rng(0)
        for done, mark in pairwise([0, *marks]):
            for rows in _batches(draw, mark - done, bundle.manifest, vocabulary):
                driver.run(rows, _IN_FLIGHT)
            resident.append((mark, resident_mb()))
    weights = bundle.weights_path(precision).stat().st_size / 1e6
    return {"weights_mb": weights, "resident_mb": resident, "peak_mb": resident_mb("VmHWM")}


def resident_mb(field: str = "VmRSS") -> float:
    """Return this process's resident memory, or its peak (`VmHWM`), in MB."""
    lines = _STATUS.read_text().splitlines()
    kibibytes = next(line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kibibytes) * 1024 / 1e6


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
    main()
