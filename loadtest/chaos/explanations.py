"""Why a request may fail during an event. A failure without an entry here is a problem."""

import re
from typing import Literal, NamedTuple, TypeAlias

Event: TypeAlias = Literal[
    "replica killed",
    "replica stopped",
    "controller killed",
    "controller stopped",
    "proxy killed",
    "thresholds",
    "user_config",
    "new code",
    "SIGTERM",
    "head killed",
]


class Explanation(NamedTuple):
    """A failure that may happen during an event, and its cause."""

    event: Event
    pattern: re.Pattern[str]
    why: str


EXPLANATIONS = (
    Explanation(
        "replica killed",
        re.compile(r"no answer(?!.*refused)|50[03] "),
        "the request was in the replica that was killed, and its connection ended; no other "
        "replica gets it, because the server cannot know whether it had effects; classification "
        "has none, so clients may send it again",
    ),
    Explanation(
        "replica stopped",
        re.compile(r"no answer(?!.*refused)|50[03] "),
        "the request, or its connection, was in the replica that hung, and waited until Ray Serve "
        "had found and killed it; connections went on being dealt to it meanwhile",
    ),
    Explanation(
        "proxy killed",
        re.compile(r"no answer|50[03] "),
        "there was no proxy, or the proxy died with the request: Ray Serve's controller starts "
        "another; a cluster has a proxy on every node and a load balancer in front",
    ),
    Explanation(
        "SIGTERM",
        re.compile(r"refused|\[Errno 111\]|503 (?!without JSON)|Connection reset|closed"),
        "the server was ending: requests in flight were answered, later ones were refused",
    ),
)


def why(event: Event, message: str) -> str | None:
    """Return the explanation of this failure during this event, if there is one."""
    for explanation in EXPLANATIONS:
        if event == explanation.event and explanation.pattern.search(message):
            return explanation.why
    return None
