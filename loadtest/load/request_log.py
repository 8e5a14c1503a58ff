"""One request of a load test and its outcome."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.http.client import Json
from loadtest.load.texts import Example

# A server that is busy, starting or ending. Other refusals are final.
_TRANSIENT = (0, 429, 500, 502, 503, 504)


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


@dataclass(slots=True)
class LoggedRequest:
    """One request with all its tries."""

    examples: list[Example]
    late_ms: float  # how long after it was due it was sent
    outcome: Outcome | None = None  # of the last try
    earlier: list[str] = field(default_factory=list)  # the problems of the tries before the last
    sent: bool = True  # False if too many other requests were waiting


def outcome_of(
    status: int, content: bytes, headers: Mapping[str, Any] | None, num_texts: int
) -> Outcome:
    """Judge a response: every text must have a result."""
    try:
        reply = json.loads(content)
    except ValueError:
        shown = content[:80].decode(errors="replace")
        return Outcome(status, f"{status} without JSON: {shown}")
    if status != 200:
        return Outcome(status, f"{status} {reply.get('error')}", retry_after_s=_seconds(headers))
    num_results = len(reply.get("results", ()))
    if num_results != num_texts:
        return Outcome(status, f"{num_results} results for {num_texts} texts")
    return Outcome(status, reply=reply)


def _seconds(headers: Mapping[str, Any] | None) -> float | None:
    try:
        return float((headers or {}).get("retry-after", ""))
    except ValueError:
        return None
