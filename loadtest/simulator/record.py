"""The outcome of every request."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from loadtest.simulator.arrivals import Times
from loadtest.simulator.workload import Workload


@dataclass(slots=True)
class Record:
    """Written while a contender runs."""

    answered_s: list[float]  # one per request
    layers: list[int]  # segments run per answer
    answers: list[int]  # how often each request was answered; 1 each in the end
    num_tokens: int = 0  # real tokens that went through segments
    padded_tokens: int = 0  # those with padding
    batch_rows: Counter[int] = field(default_factory=Counter)  # rows -> segment runs with so many

    @classmethod
    def of(cls, num: int) -> "Record":
        """Return an empty record for so many requests."""
        return cls([0.0] * num, [0] * num, [0] * num)

    def answer(self, request: int, now_s: float, layer: int) -> None:
        """Record a request's answer after `layer` segments."""
        self.answered_s[request] = now_s
        self.layers[request] = layer
        self.answers[request] += 1

    def run(self, rows: int, real_tokens: int, longest: int) -> None:
        """Record one run of one segment."""
        self.batch_rows[rows] += 1
        self.num_tokens += real_tokens
        self.padded_tokens += rows * longest

    def answered(self, work: Workload) -> Times:
        """Return (requests,) when each was answered.

        Raises:
            RuntimeError: a request was lost or answered twice.
        """
        if self.answers != [1] * len(work):
            raise RuntimeError("not every request was answered exactly once")
        return np.array(self.answered_s)
