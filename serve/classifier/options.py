"""How a model is run."""

from dataclasses import dataclass

from serve.engine.admission import QueueLimits
from serve.engine.scheduler import BatchLimits


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a model is run.

    Attributes:
        device: `auto`, `cpu` or `cuda`; see `serve.runtime.placement`.
        precision: `auto`, or the variant to use.
        gpu_memory_gb: what a process's models may occupy on a GPU together; None for no limit.
        num_threads: of each segment; None for all cores that the process may use.
        batch_limits: how large a batch may grow.
        queue_limits: how much is admitted.
        tokenizer_threads: threads of a process that tokenize long texts, for all its models.
    """

    device: str = "auto"
    precision: str = "auto"
    gpu_memory_gb: float | None = None
    num_threads: int | None = None
    batch_limits: BatchLimits = BatchLimits()
    queue_limits: QueueLimits = QueueLimits()
    tokenizer_threads: int = 2
