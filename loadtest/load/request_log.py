"""What was asked and what became of it: the part of a request that Locust does not know."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.http.client import Json
from loadtest.load.texts import Example

# A server that is busy, starting or ending. What it refuses for good is not sent again.
_PASSING = (0, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one try gave.

    Attributes:
        status: HTTP status; 0 where there was no answer.
        problem: why it counts as a failure; empty where it does not.
        reply: the answer.
        retry_after_s: what the server says about coming back.
    """

    status: int
    problem: str = ""
    reply: Json | None = None
    retry_after_s: float | None = None


@dataclass(slots=True)
class Asked:
    """One request of a load test, its tries taken together.

    Attributes:
        examples: what was asked about.
        late_ms: how long after it was due the request was sent.
        outcome: of the last try.
        earlier: the problems of the tries before it.
        sent: False where too many others were waiting.
    """

    examples: list[Example]
    late_ms: float
    outcome: Outcome | None = None
    earlier: list[str] = field(default_factory=list)
    sent: bool = True


def problem_of(
    status: int, content: bytes, headers: Mapping[str, Any] | None, num_texts: int
) -> Outcome:
    """Judge a response: anything but an answer to every text is a problem, in words."""
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


def worth_a_retry(outcome: Outcome) -> bool:
    """Tell whether the same request may fare better: classification is safe to send again."""
    return outcome.status in _PASSING


def _seconds(headers: Mapping[str, Any] | None) -> float | None:
    try:
        return float((headers or {}).get("retry-after", ""))
    except ValueError:
        return None
