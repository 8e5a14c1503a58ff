"""The requests of a load test and their outcomes; the report is made from them."""

import json
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.http.client import Json
from loadtest.http.metrics_page import ExitCounts, exits_in_reply
from loadtest.load.texts import Example

# A server that is busy, starting or ending. Other refusals are final.
_TRANSIENT = (0, 429, 500, 502, 503, 504)
# The server's own times, in its answers.
SERVER_TIMES = ("queue_ms", "compute_ms", "total_ms")
# Of each request: when it was due (open loop) or sent, since the run began; the time from then to
# its answer; how long after it was due it was sent; 1 if it failed.
COLUMNS = ("began_s", "latency_ms", "late_ms", "failed", *SERVER_TIMES)

Column = NDArray[np.float64]  # (requests,)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one try."""

    status: int  # HTTP status; 0 without an answer
    problem: str = ""  # why the try failed; empty if it did not
    reply: Json | None = None
    retry_after_s: float | None = None  # the server's Retry-After

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later; classification is safe to send again."""
        return self.status in _TRANSIENT

    @classmethod
    def of(
        cls, status: int, content: bytes, headers: Mapping[str, Any] | None, num_texts: int
    ) -> "Outcome":
        """Judge a response: every text must have a result."""
        try:
            reply = json.loads(content)
        except ValueError:
            return cls(status, f"{status} without JSON: {content[:80].decode(errors='replace')}")
        if status != 200:
            wait = str((headers or {}).get("retry-after", ""))
            wait_s = float(wait) if wait.isdecimal() else None
            return cls(status, f"{status} {reply.get('error')}", retry_after_s=wait_s)
        num_results = len(reply.get("results", ()))
        if num_results != num_texts:
            return cls(status, f"{num_results} results for {num_texts} texts")
        return cls(status, reply=reply)


@dataclass(slots=True)
class LoggedRequest:
    """One request with all its tries."""

    examples: list[Example]
    late_ms: float  # how long after it was due it was sent
    outcome: Outcome | None = None  # of the last try
    earlier: list[str] = field(default_factory=list)  # the problems of the tries before the last
    sent: bool = True  # False if too many other requests were waiting


@dataclass
class Samples:
    """The requests of a run, in about sixty bytes each."""

    labels: Sequence[str] = ()  # the model's, in order, for data whose labels are numbers
    numbers: "array[float]" = field(default_factory=lambda: array("d"))  # `COLUMNS`, row by row
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
        timing = reply.get("timing", {}) if reply else {}
        times = (timing.get(name, float("nan")) for name in SERVER_TIMES)
        self.kinds.append(kind)
        self.numbers.extend((began_s, latency_ms, logged.late_ms, reply is None, *times))
        self.not_sent += not logged.sent
        self.retried.update(logged.earlier)
        self.first_failed += bool(logged.earlier) or reply is None
        if reply is None:
            self.errors[f"{kind}: {outcome.problem if outcome else 'no outcome'}"] += 1
        else:
            self._add_reply(reply, logged)

    def columns(self) -> dict[str, Column]:
        """Return all columns by name."""
        rows = np.array(self.numbers).reshape(-1, len(COLUMNS))
        return dict(zip(COLUMNS, rows.T, strict=True))

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
