"""Batches in flight that have met at one depth."""

import math
from dataclasses import dataclass, field

from serve.engine.batch import Batch
from serve.engine.merge_policy import BatchSize


@dataclass(slots=True, eq=False)
class BatchGroup:
    """Batches at one depth that will run together.

    Without batches it stands for the batch of new rows that could start.
    """

    depth: int
    level: int
    deadline_s: float
    held_from_s: float
    num_rows: int = 0
    longest: int = 0
    held_until_s: float = math.inf
    start_by_s: float = math.inf
    batches: list[Batch] = field(default_factory=list)

    @property
    def size(self) -> BatchSize:
        """Its rows as one batch."""
        return BatchSize(self.num_rows, self.longest, self.level, self.deadline_s)

    def add(self, batch: Batch) -> None:
        """Take in a batch at the same depth."""
        self.batches.append(batch)
        self.level = min(self.level, batch.level)
        self.deadline_s = min(self.deadline_s, batch.deadline_s)
        self.held_from_s = min(self.held_from_s, batch.held_from_s)
        self.num_rows += len(batch.rows)
        self.longest = max(self.longest, batch.longest)
