"""One variant of a bundle in every form that is measured: its segments, and one graph."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort
from tokenizers import Tokenizer

from loadtest.bench.chain import Clock
from loadtest.bench.one_graph import write_one_graph
from loadtest.bench.one_graph_session import OneGraph, open_on_cpu
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.classifier.variant import model_shape
from serve.engine.shape import ModelShape
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.ort_session import plain_options, session_options


@dataclass(frozen=True)
class LoadedBundle:
    """A bundle's variant on the CPU."""

    bundle: Bundle
    precision: Precision
    vocabulary: int  # number of token ids
    chain: CpuRunner
    # The model as one graph, once for each setting in `fair_options`.
    one_graphs: Sequence[OneGraph]
    clock: Clock  # for work of one thread; its own time if there is only one thread

    @property
    def shape(self) -> ModelShape:
        """What the engine must know of the model."""
        return model_shape(self.bundle.manifest)

    @property
    def depth(self) -> int:
        """The model's layers."""
        return self.bundle.manifest.num_layers


def load(bundle: Bundle, precision: Precision, num_threads: int) -> LoadedBundle:
    """Load one variant; every session gets `num_threads`."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_one_graph(bundle, precision, Path(folder))
        one_graphs = [open_on_cpu(path, options) for options in fair_options(num_threads)]
    return LoadedBundle(
        bundle,
        precision,
        vocabulary_size(bundle),
        CpuRunner(bundle, precision, num_threads),
        one_graphs,
        # Other work of the machine does not count in one thread's own time.
        time.thread_time if num_threads == 1 else time.perf_counter,
    )


def vocabulary_size(bundle: Bundle) -> int:
    """Return the number of token ids that the tokenizer knows."""
    return Tokenizer.from_file(str(bundle.tokenizer_path)).get_vocab_size()


def fair_options(num_threads: int) -> list[ort.SessionOptions]:
    """Return the settings that may suit the one graph best; the faster one counts.

    With ONNX Runtime's default settings a session's threads go on spinning after a run.
    """
    ours = session_options(num_threads)
    return [ours] if num_threads == 1 else [ours, plain_options(num_threads)]
