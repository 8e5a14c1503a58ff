"""Metrics of the connections of this process's HTTP server."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.access.held_bytes import HeldBytes
from serve.http.settings import Closed, ConnectionState


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
        for reason in Closed:
            closed.add_metric([reason], self._state.closed[reason])
        # The client did not take its answer, which made room for others.
        closed.add_metric(["unread"], sum(each.num_given_up for each in self._answers))
        yield closed
