"""What is read of the connections of this process's HTTP server at every scrape."""

from collections.abc import Iterator, Sequence

from serve.access.held_bytes import HeldBytes
from serve.http.settings import Closed, ConnectionState
from serve.metrics.families import Sample


def connection_samples(state: ConnectionState, answers: Sequence[HeldBytes]) -> Iterator[Sample]:
    """Yield the samples of the connections, and of the answers that they carry."""
    yield "connections", [], state.num_open
    yield "unsent_bytes", [], sum(each.num_bytes for each in answers)
    for reason in Closed:
        yield "connections_closed", [reason], state.closed[reason]
    # The client did not take its answer, which made room for others.
    yield "connections_closed", ["unread"], sum(each.num_given_up for each in answers)
