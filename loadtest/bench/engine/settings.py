"""What the bench builds and how long it measures; both are written beside the figures."""

from dataclasses import dataclass
from typing import Literal

from loadtest.bench.inputs import SHAPES, Shape


@dataclass(frozen=True)
class ModelSettings:
    """A BERT with random weights and an exit head after every layer."""

    name: str = "bert-base"
    layers: int = 12
    width: int = 768  # of hidden states; the inner layer is four times as wide
    heads: int = 12
    vocabulary: int = 30_522  # word pieces
    max_tokens: int = 512
    # Whether each exit has a tanh pooler of its own. For one short text, time is spent reading
    # weights, and a pooler has 8 % of a layer's weights.
    pooler: bool = False
    pooling: Literal["first", "mean"] = "first"  # of a head: a text's first token, or the mean
    seed: int = 0


BERT_BASE = ModelSettings()
BERT_BASE_POOLER = ModelSettings(name="bert-base-pooler", pooler=True)
# Narrow enough that 100,000 long requests take minutes.
NARROW = ModelSettings(name="bert-narrow", width=64, heads=2)


@dataclass(frozen=True)
class Budget:
    """How much is run, per precision."""

    shapes: tuple[Shape, ...] = SHAPES  # of the batches that run as segments and as one graph
    shape_s: float = 30.0  # least time for each shape
    shape_turns: int = 15  # least turns of each contender; a turn of a large batch takes seconds
    leave_turns: int = 60  # least lone requests per exit layer and length
    leave_s: float = 20.0  # least time for each length
    # Turns of each contender under full load; many short turns, so that some of them are
    # undisturbed.
    rounds: int = 10
    requests: int = 768  # answered by a contender in a turn
    in_flight: int = 256  # requests that are sent and not yet answered
    bookkeeping_rows: int = 20_000  # answers per turn with segments that cost nothing
    lone_turns: int = 150  # lone requests through the engine and through the bare segments
    memory_requests: int = 100_000  # answered by the narrow model
    wide_memory_requests: int = 2_000  # answered by the model that everything else is measured on


QUICK = Budget(
    shape_s=0.5,
    shape_turns=5,
    leave_turns=5,
    leave_s=1.0,
    rounds=2,
    requests=384,
    bookkeeping_rows=10_000,
    lone_turns=30,
    memory_requests=10_000,
    wide_memory_requests=300,
)
