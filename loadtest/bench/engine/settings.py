"""What the bench builds and how long it measures: frozen, and written beside the figures."""

from dataclasses import dataclass

from loadtest.bench.inputs import Shape


@dataclass(frozen=True)
class ModelSettings:
    """A BERT with random weights and an exit head after every layer.

    Attributes:
        name: of its bundle.
        layers: how many.
        width: of hidden states; the inner layer is four times as wide.
        heads: of the attention.
        vocabulary: word pieces.
        max_tokens: the longest input.
        pooler: whether each exit has a tanh pooler of its own. On one short text time is that of
            reading weights, and a pooler has 8 % of a layer's, so it is off unless asked for.
        seed: of the weights.
    """

    name: str = "bert-base"
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 30_522
    max_tokens: int = 512
    pooler: bool = False
    seed: int = 0


BERT_BASE = ModelSettings()
BERT_BASE_POOLER = ModelSettings(name="bert-base-pooler", pooler=True)
# The same graph, narrow enough that 100,000 long requests are a matter of minutes.
NARROW = ModelSettings(name="bert-narrow", width=64, heads=2)


@dataclass(frozen=True)
class Budget:
    """How much is run; times are per precision.

    Attributes:
        shapes: of the batches that are run as segments and as one graph.
        shape_s: time for each of them, at least: a machine may be slower for some seconds.
        shape_turns: of each contender, at least: of large batches one turn takes seconds, and by a
            tenth more or less.
        leave_turns: lone requests per exit layer and length, at least.
        leave_s: time for each length, at least, likewise.
        rounds: turns of each contender under full load: many short ones, so that the machine is
            undisturbed in some of each.
        requests: how many each of them answers in a turn.
        in_flight: requests that are sent and not yet answered, while there are so many.
        bookkeeping_rows: answers per turn with segments that cost nothing.
        lone_turns: lone requests through the engine and through the bare segments.
        memory_requests: answered by the narrow model.
        wide_memory_requests: answered by the model that everything else is measured on.
    """

    shapes: tuple[Shape, ...] = (
        Shape(1, 8),
        Shape(1, 32),
        Shape(1, 128),
        Shape(8, 32),
        Shape(32, 32),
    )
    shape_s: float = 30.0
    shape_turns: int = 15
    leave_turns: int = 60
    leave_s: float = 20.0
    rounds: int = 10
    requests: int = 768
    in_flight: int = 256
    bookkeeping_rows: int = 20_000
    lone_turns: int = 150
    memory_requests: int = 100_000
    wide_memory_requests: int = 2_000


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
