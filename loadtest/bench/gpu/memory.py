"""Memory in use, and what happens when it runs out."""

import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.engine_driver import driving, rows_of
from loadtest.bench.errors import BenchFailed
from loadtest.bench.gpu.facts import ask_smi
from loadtest.bench.gpu.plan import NEEDS_CUDA, Figures
from loadtest.bench.gpu.subject import Subject
from loadtest.bench.inputs import Shape, random_texts
from serve.engine.device_errors import out_of_memory
from serve.engine.runner import Hidden, Ids, ModelRunner, StepOutput
from serve.engine.scheduler import BatchLimits

# So many times the largest shape's rows: no earlier batch has left room for them.
_TIMES = 4
_OCCUPIED_BYTES = (1 << 30, 1 << 26, 1 << 22)  # blocks, largest first


def measure_memory(subject: Subject, figures: Figures, seconds: float) -> None:
    """Report memory in use; on CUDA fill it: a batch that meets that is answered in halves."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures.add("host_peak_mib", used)
    if subject.on_cuda:
        figures.add("gpu_used_and_total", ask_smi("memory.used,memory.total"))
    else:
        figures.skip("used memory of the device", NEEDS_CUDA)
        figures.skip("a full device", NEEDS_CUDA)
    variant = subject.variant
    tokens = min(32, variant.max_tokens)
    rows = _TIMES * max(shape.rows * shape.tokens for shape in variant.shapes) // tokens
    watched = WatchedRunner(variant.chain)
    # Afterwards the arena has room for half of the rows.
    _answer(subject, watched, figures, "half", Shape(rows // 2, tokens))
    if subject.on_cuda:
        with _occupied():
            _answer(subject, watched, figures, "full device", Shape(rows, tokens))
        if not watched.refusals:
            figures.problem("memory, full device: nothing ran out, so nothing was tried again")


class WatchedRunner:
    """A runner that counts what failed for want of memory.

    Attributes:
        refusals: runs that failed.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.refusals = 0

    def __len__(self) -> int:
        return len(self._runner)

    def start(self, input_ids: Ids, *more: Any, **named: Any) -> StepOutput:
        return self._counted(partial(self._runner.start, input_ids, *more, **named))

    def advance(self, index: int, hidden: Hidden, *more: Any, **named: Any) -> StepOutput:
        return self._counted(partial(self._runner.advance, index, hidden, *more, **named))

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        return self._runner.join(parts)

    def _counted(self, run: Callable[[], StepOutput]) -> StepOutput:
        try:
            return run()
        except Exception as error:
            self.refusals += out_of_memory(error)
            raise


def _answer(
    subject: Subject, runner: WatchedRunner, figures: Figures, name: str, shape: Shape
) -> None:
    """Answer one batch of the engine; a problem if a row gets an error."""
    variant = subject.variant
    texts = random_texts([shape.tokens] * shape.rows, variant.vocabulary)
    layers = [variant.bundle.manifest.exit_layers[-1]] * shape.rows
    limits = BatchLimits(max_rows=shape.rows, max_tokens=shape.rows * shape.tokens)
    runner.refusals = 0
    error = None
    try:
        with driving(runner, variant.shape, limits) as driver:
            driver.run(rows_of(variant.shape, texts, layers), shape.rows)
    except BenchFailed as failure:
        error = str(failure)
        figures.problem(f"memory, {name}: {error}")
    line = {"case": name, "rows": shape.rows, "tokens": shape.tokens, "error": error}
    figures.row("out_of_memory", **line, refusals=runner.refusals)


@contextmanager
def _occupied() -> Iterator[None]:
    """Take all memory of the device that is free."""
    from cuda.bindings import runtime

    held = []
    for num_bytes in _OCCUPIED_BYTES:
        while True:
            status, address = runtime.cudaMalloc(num_bytes)
            if int(status):
                runtime.cudaGetLastError()  # not sticky; forgets it
                break
            held.append(address)
    try:
        yield
    finally:
        for address in held:
            runtime.cudaFree(address)
