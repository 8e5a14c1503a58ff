"""How a model is run, and how much of it at once."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from serve.engine.admission import QueueLimits
from serve.engine.scheduler import BatchLimits

# A large GPU is busy with its launches alone up to about 2,700 tokens (an estimate).
BATCH_LIMITS: Final[Mapping[str, BatchLimits]] = {
    "cpu": BatchLimits(),
    "cuda": BatchLimits(max_rows=512, max_tokens=16_384, in_flight=2),
}


class EngineLimits(BaseModel):
    """How much a model's engine takes on.

    Attributes:
        max_batch_rows: rows in a batch, at most `max_queue_rows`; None for what suits the device.
        max_batch_tokens: rows times the longest row in a batch, at most `max_queue_tokens`; None
            for what suits the device.
        max_queue_rows: rows admitted and not yet answered, per process and model.
        max_queue_tokens: tokens of those rows.
        tokenizer_threads: threads of a process that tokenize long texts, for all its models.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_batch_rows: PositiveInt | None = None
    max_batch_tokens: PositiveInt | None = None
    max_queue_rows: PositiveInt = QueueLimits().max_rows
    max_queue_tokens: PositiveInt = QueueLimits().max_tokens
    tokenizer_threads: PositiveInt = 2

    @model_validator(mode="after")
    def _check_batches(self) -> Self:
        for of in ("rows", "tokens"):
            batch, queue = getattr(self, f"max_batch_{of}"), getattr(self, f"max_queue_{of}")
            if batch is not None and batch > queue:
                raise ValueError(
                    f"max_batch_{of}: {batch}, but the queue holds {queue} at most (max_queue_{of})"
                )
        return self

    @property
    def queue_limits(self) -> QueueLimits:
        """How much is admitted."""
        return QueueLimits(self.max_queue_rows, self.max_queue_tokens)

    def batch_limits(self, device: str) -> BatchLimits:
        """Return how large a batch may grow on `cpu` or `cuda`."""
        usual = BATCH_LIMITS[device]
        return replace(
            usual,
            max_rows=self.max_batch_rows or usual.max_rows,
            max_tokens=self.max_batch_tokens or usual.max_tokens,
        )


class EngineOptions(EngineLimits):
    """How a model is run.

    Attributes:
        device: `auto`, `cpu` or `cuda`; auto is CUDA where a usable GPU is found.
        precision: `auto`, or the variant to use.
        gpu_memory_gb: what a process's models may occupy on a GPU together; None for no limit.
        num_threads: threads of each segment; None for all cores that the process may use.
        answer_cache_mb: MiB of answers that a model keeps to give them again; None for none.
    """

    device: str = Field(default="auto", pattern="^(auto|cpu|cuda)$")
    precision: str = Field(default="auto", pattern="^(auto|fp32|int8|fp16)$")
    gpu_memory_gb: PositiveFloat | None = None
    num_threads: PositiveInt | None = None
    answer_cache_mb: PositiveFloat | None = None
