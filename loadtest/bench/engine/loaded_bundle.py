"""What is measured, loaded: a bundle's segments and the same model as one graph."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from loadtest.bench.one_graph_session import OneGraph
from loadtest.bench.segments.comparison import one_graphs
from loadtest.bench.segments.segment_timing import Clock
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Manifest, Precision
from serve.engine.core import ModelShape
from serve.runtime.cpu_runner import CpuRunner


@dataclass(frozen=True)
class Subject:
    """One precision of the model, in every form that is compared.

    Attributes:
        bundle: where it is from.
        precision: which variant.
        vocabulary: ids are drawn below this.
        chain: its segments.
        one_graphs: the model with its last head alone, as one graph, in the settings that may
            suit it; the best counts.
        every_head: the same with every head.
        clock: for what one thread does by itself, in seconds.
    """

    bundle: Bundle
    precision: Precision
    vocabulary: int
    chain: CpuRunner
    one_graphs: Sequence[OneGraph]
    every_head: Sequence[OneGraph]
    clock: Clock

    @property
    def shape(self) -> ModelShape:
        """What the engine must know of the model."""
        return shape_of(self.bundle.manifest)

    @property
    def depth(self) -> int:
        """The model's layers."""
        return self.bundle.manifest.num_layers


def shape_of(manifest: Manifest) -> ModelShape:
    """Return what the engine must know of a model."""
    temperatures = tuple(exit_.temperature for exit_ in manifest.exits)
    return ModelShape(manifest.traits, temperatures, manifest.pad_id)


@contextmanager
def loaded(
    bundle: Bundle, precision: Precision, vocabulary: int, num_threads: int
) -> Iterator[Subject]:
    """Load one precision in every form for a block.

    Args:
        bundle: from which.
        precision: which variant.
        vocabulary: number of its token ids.
        num_threads: of every session.
    """
    last_head, every_head = (
        one_graphs(bundle, precision, num_threads, every) for every in (False, True)
    )
    chain = CpuRunner(bundle, precision, num_threads)
    # One thread's own time is not disturbed by what else the machine does.
    clock = time.thread_time if num_threads == 1 else time.perf_counter
    yield Subject(bundle, precision, vocabulary, chain, last_head, every_head, clock)
