"""Every request of a run, as columns: what its report is made from."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from loadtest.http.exit_counts import ExitCounts, exits_in_reply
from loadtest.load.request_log import Asked

_SERVER_TIMES = ("queue_ms", "compute_ms", "total_ms")

Column = NDArray[np.float64]  # (requests,)


@dataclass
class Samples:
    """What happened, request by request, in some forty bytes each.

    Attributes:
        labels: the model's, in order, for data whose labels are numbers.
        began_s: when each was due (open loop) or sent, since the run began.
        latency_ms: from then to its answer.
        late_ms: how long after it was due it was sent; what the load generator adds.
        server_ms: queue, compute and total by the server's own clock; NaN without an answer.
        failed: 1 where it failed.
        kinds: which kind it was.
        exits: by the second in which the request began.
        errors: message -> how often.
        retried: message -> how often, of tries that were repeated.
        right: answers that were right, and answers whose right label is known.
        versions: policy version -> exit layer -> answers.
        not_sent: requests that were due while too many others waited.
        first_failed: requests whose first try failed, whatever became of the next.
        layers: the model's depth.
    """

    labels: Sequence[str] = ()
    began_s: "array[float]" = field(default_factory=lambda: array("d"))
    latency_ms: "array[float]" = field(default_factory=lambda: array("f"))
    late_ms: "array[float]" = field(default_factory=lambda: array("f"))
    server_ms: "tuple[array[float], ...]" = field(
        default_factory=lambda: (array("f"), array("f"), array("f"))
    )
    failed: "array[int]" = field(default_factory=lambda: array("b"))
    kinds: list[str] = field(default_factory=list)
    exits: dict[int, ExitCounts] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    right: list[int] = field(default_factory=lambda: [0, 0])
    versions: dict[int, Counter[int]] = field(default_factory=dict)
    not_sent: int = 0
    first_failed: int = 0
    layers: int = 0

    def add(self, kind: str, began_s: float, latency_ms: float, asked: Asked) -> None:
        """Note one request."""
        outcome = asked.outcome
        reply = outcome.reply if outcome else None
        self.kinds.append(kind)
        self.began_s.append(began_s)
        self.latency_ms.append(latency_ms)
        self.late_ms.append(asked.late_ms)
        self.failed.append(reply is None)
        self.not_sent += not asked.sent
        self.retried.update(asked.earlier)
        self.first_failed += bool(asked.earlier) or reply is None
        timing = reply.get("timing", {}) if reply else {}
        for column, name in zip(self.server_ms, _SERVER_TIMES, strict=True):
            column.append(timing.get(name, float("nan")))
        if reply is None:
            self.errors[f"{kind}: {outcome.problem if outcome else 'no outcome'}"] += 1
            return
        exits = exits_in_reply(reply)
        self.exits.setdefault(int(began_s), Counter()).update(exits)
        by_layer = self.versions.setdefault(reply.get("policy_version", 0), Counter())
        by_layer.update({leaving.layer: count for leaving, count in exits.items()})
        self._judge(asked, reply["results"])

    @property
    def seen(self) -> ExitCounts:
        """All exits that answers named."""
        total: ExitCounts = Counter()
        for exits in self.exits.values():
            total.update(exits)
        return total

    @property
    def accuracy(self) -> float | None:
        """Share of right answers, where the right ones are known."""
        right, known = self.right
        return right / known if known else None

    @property
    def longest_gap_s(self) -> float:
        """The longest time during which nothing was answered."""
        began = self.column("began_s")
        ended = (began + self.column("latency_ms") / 1e3)[~self.failures]
        # A server that is silent at the end is so at least until the last request came.
        moments = np.sort(np.append(ended, [0.0, began.max(initial=0.0)]))
        return float(np.diff(moments).max(initial=0.0))

    @property
    def first_failure_s(self) -> float | None:
        """When the first request was due that failed for good."""
        began = self.column("began_s")[self.failures]
        return float(began.min()) if len(began) else None

    @property
    def failures(self) -> NDArray[np.bool_]:
        """Which requests failed: (requests,)."""
        return self.column("failed") > 0

    def column(self, name: str) -> Column:
        """Return a column as numbers."""
        return np.array(getattr(self, name), dtype=np.float64)

    def _judge(self, asked: Asked, results: Sequence[dict[str, object]]) -> None:
        for example, result in zip(asked.examples, results, strict=True):
            self.layers = max(self.layers, _depth(result))
            if example.label is not None:
                self.right[0] += example.right(str(result["label"]), self.labels)
                self.right[1] += 1


def _depth(result: dict[str, object]) -> int:
    leaving = result["exit"]
    return int(leaving["layers"]) if isinstance(leaving, dict) else 0
