"""What the HTTP server of this process tells the app and the metrics about its connections."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.access.held_bytes import HeldBytes


class Closed(StrEnum):
    """Why the server has closed a connection, or not taken it."""

    HEAD_TIMEOUT = "head_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    BODY_TIMEOUT = "body_timeout"
    BODY_RATE = "body_rate"
    WRITE_TIMEOUT = "write_timeout"
    BAD_REQUEST = "bad_request"
    TLS_HANDSHAKE = "tls_handshake"
    LIMIT = "limit"  # made room for a newer one
    REFUSED = "refused"  # there was no room
    UNREAD = "unread"  # its answer, which the client did not take, made room for others


@dataclass(slots=True)
class ConnectionState:
    """Belongs to the event loop.

    Attributes:
        stopping: whether the server wants no new requests; those that arrive are still answered.
        num_open: connections, with those whose TLS handshake goes on.
        closed: connections by the reason why the server has ended them.
    """

    stopping: bool = False
    num_open: int = 0
    closed: Counter[Closed] = field(default_factory=Counter)


class ConnectionCollector(Collector):
    """Connections and the answers that they carry, read at every scrape."""

    def __init__(self, state: ConnectionState, answers: Sequence[HeldBytes]) -> None:
        self._state, self._answers = state, answers

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges and the counter."""
        yield GaugeMetricFamily(
            "offramp_connections", "Open connections of the HTTP server.", self._state.num_open
        )
        yield GaugeMetricFamily(
            "offramp_unsent_bytes",
            "Bytes of large answers that clients have not taken yet.",
            sum(each.num_bytes for each in self._answers),
        )
        closed = CounterMetricFamily(
            "offramp_connections_closed",
            "Connections that the server closed or refused by itself.",
            labels=["reason"],
        )
        given_up = sum(each.num_given_up for each in self._answers)
        for reason in Closed:
            number = given_up if reason is Closed.UNREAD else self._state.closed[reason]
            closed.add_metric([reason], number)
        yield closed
