"""How long the bench measures."""

from dataclasses import dataclass

from loadtest.bench.inputs import SHAPES, Shape


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
