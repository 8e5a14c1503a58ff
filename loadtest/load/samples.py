"""Every request of a run, as columns; the report is made from them."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from loadtest.http.client import Json
from loadtest.http.metrics_page import ExitCounts, exits_in_reply
from loadtest.load.request_log import LoggedRequest

SERVER_TIMES = ("queue_ms", "compute_ms", "total_ms")

Column = NDArray[np.float64]  # (requests,)


@dataclass
class Samples:
    """The requests of a run, in about forty bytes each."""

    labels: Sequence[str] = ()  # the model's, in order, for data whose labels are numbers
    # When each request was due (open loop) or sent, since the run began.
    began_s: "array[float]" = field(default_factory=lambda: array("d"))
    # From then to its answer.
    latency_ms: "array[float]" = field(default_factory=lambda: array("f"))
    # How long after it was due it was sent; the load generator's own delay.
    late_ms: "array[float]" = field(default_factory=lambda: array("f"))
    # `SERVER_TIMES` of the answers; NaN without an answer.
    server_ms: "tuple[array[float], ...]" = field(
        default_factory=lambda: tuple(array("f") for _ in SERVER_TIMES)
    )
    failed: "array[int]" = field(default_factory=lambda: array("b"))  # 1 if it failed
    kinds: list[str] = field(default_factory=list)
    seen: ExitCounts = field(default_factory=Counter)  # exits that answers named
    errors: Counter[str] = field(default_factory=Counter)  # message -> how often
    # Message -> how often, of tries that were repeated.
    retried: Counter[str] = field(default_factory=Counter)
    # Right answers, and answers whose right label is known.
    right: list[int] = field(default_factory=lambda: [0, 0])
    # Policy version -> exit layer -> answers.
    versions: dict[int, Counter[int]] = field(default_factory=dict)
    not_sent: int = 0  # requests that were due while too many others waited
    first_failed: int = 0  # requests whose first try failed
    layers: int = 0  # the model's depth

    def add(self, kind: str, began_s: float, latency_ms: float, logged: LoggedRequest) -> None:
        """Add one request."""
        outcome = logged.outcome
        reply = outcome.reply if outcome else None
        self.kinds.append(kind)
        self.began_s.append(began_s)
        self.latency_ms.append(latency_ms)
        self.late_ms.append(logged.late_ms)
        self.failed.append(reply is None)
        self.not_sent += not logged.sent
        self.retried.update(logged.earlier)
        self.first_failed += bool(logged.earlier) or reply is None
        timing = reply.get("timing", {}) if reply else {}
        for column, name in zip(self.server_ms, SERVER_TIMES, strict=True):
            column.append(timing.get(name, float("nan")))
        if reply is None:
            self.errors[f"{kind}: {outcome.problem if outcome else 'no outcome'}"] += 1
        else:
            self._add_reply(reply, logged)

    @property
    def accuracy(self) -> float | None:
        """Share of right answers; None if no right label is known."""
        right, known = self.right
        return right / known if known else None

    @property
    def longest_gap_s(self) -> float:
        """The longest time without an answer, up to when the last request began."""
        began = self.column("began_s")
        ended = (began + self.column("latency_ms") / 1e3)[~self.failures]
        moments = np.sort(np.append(ended, [0.0, began.max(initial=0.0)]))
        return float(np.diff(moments).max(initial=0.0))

    @property
    def first_failure_s(self) -> float | None:
        """When the first request was due whose last try failed."""
        began = self.column("began_s")[self.failures]
        return float(began.min()) if len(began) else None

    @property
    def failures(self) -> NDArray[np.bool_]:
        """Which requests failed: (requests,)."""
        return self.column("failed") > 0

    def column(self, name: str) -> Column:
        """Return a column as numbers."""
        return np.array(getattr(self, name), dtype=np.float64)

    def _add_reply(self, reply: Json, logged: LoggedRequest) -> None:
        exits = exits_in_reply(reply)
        self.seen.update(exits)
        by_layer = self.versions.setdefault(reply.get("policy_version", 0), Counter())
        by_layer.update({exit_.layer: count for exit_, count in exits.items()})
        for example, result in zip(logged.examples, reply["results"], strict=True):
            self.layers = max(self.layers, result["exit"]["layers"])
            # Values and entities have no label, and of several labels the best is not the answer.
            if example.label is not None and "label" in result and "labels" not in result:
                right = example.right(str(result["label"]), self.labels)
                self.right[0] += right is True
                self.right[1] += right is not None
