"""How a model is run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from serve.engine.admission import QueueLimits
from serve.engine.scheduler import BatchLimits

# A large GPU is busy with its launches alone up to about 2,700 tokens (an estimate).
BATCH_LIMITS: Final[Mapping[str, BatchLimits]] = {
    "cpu": BatchLimits(),
    "cuda": BatchLimits(max_rows=512, max_tokens=16_384),
}


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a model is run.

    Attributes:
        device: `auto`, `cpu` or `cuda`; see `serve.runtime.placement`.
        precision: `auto`, or the variant to use.
        gpu_memory_gb: what a process's models may occupy on a GPU together; None for no limit.
        num_threads: of each segment; None for all cores that the process may use.
        max_batch_rows: rows in a batch; None for what suits the device.
        max_batch_tokens: rows times the longest row in a batch; None for what suits the device.
        queue_limits: how much is admitted.
        tokenizer_threads: threads of a process that tokenize long texts, for all its models.
    """

    device: str = "auto"
    precision: str = "auto"
    gpu_memory_gb: float | None = None
    num_threads: int | None = None
    max_batch_rows: int | None = None
    max_batch_tokens: int | None = None
    queue_limits: QueueLimits = QueueLimits()
    tokenizer_threads: int = 2

    def batch_limits(self, device: str) -> BatchLimits:
        """Return how large a batch may grow on `cpu` or `cuda`."""
        usual = BATCH_LIMITS[device]
        return replace(
            usual,
            max_rows=self.max_batch_rows or usual.max_rows,
            max_tokens=self.max_batch_tokens or usual.max_tokens,
        )
