"""Batches in flight that have met at one depth."""

import math
from dataclasses import dataclass, field

from serve.engine.batch import Batch


@dataclass(slots=True, eq=False)
class BatchGroup:
    """Batches at one depth that run together.

    Without batches it stands for new rows that could start, or for a batch that may join.

    Attributes:
        depth: segments that the rows have been through.
        level: the best priority among them.
        deadline_s: the earliest.
        held_from_s: start of the time for which the rows may be held back.
        num_rows: how many.
        longest: tokens of the longest.
        held_until_s: until when the rows may be held back.
        start_by_s: when they must start for the sake of the deadline.
        batches: the batches.
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

    @classmethod
    def of(cls, batch: Batch) -> "BatchGroup":
        """Return a group of one batch."""
        group = cls(batch.depth, batch.level, batch.deadline_s, batch.held_from_s)
        group.add(batch)
        return group

    def add(self, batch: Batch) -> None:
        """Take in a batch at the same depth."""
        self.batches.append(batch)
        self.level = min(self.level, batch.level)
        self.deadline_s = min(self.deadline_s, batch.deadline_s)
        self.held_from_s = min(self.held_from_s, batch.held_from_s)
        self.num_rows += len(batch.rows)
        self.longest = max(self.longest, batch.longest)
