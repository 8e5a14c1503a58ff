"""Why a request may fail while a part of the server dies; what has no entry has no excuse."""

import re
from typing import Literal, NamedTuple, TypeAlias

Event: TypeAlias = Literal[
    "replica killed",
    "controller killed",
    "proxy killed",
    "thresholds",
    "user_config",
    "new code",
    "SIGTERM",
]


class Excuse(NamedTuple):
    """A failure that may happen in some events, and what it comes from."""

    events: tuple[Event, ...]
    pattern: re.Pattern[str]
    why: str


EXCUSES = (
    Excuse(
        ("replica killed",),
        re.compile(r"no answer(?!.*refused)|50[03] "),
        "it was in the replica that was killed, and its connection ended with it; nobody else "
        "knows whether it had effects, so nobody asks another replica; classification has none, "
        "so clients may ask again",
    ),
    Excuse(
        ("proxy killed",),
        re.compile(r"no answer|50[03] "),
        "there was no proxy to connect to, or it died with the request: Ray Serve's controller "
        "starts another; with several nodes there are several proxies and a load balancer",
    ),
    Excuse(
        ("SIGTERM",),
        re.compile(r"refused|\[Errno 111\]|503 (?!without JSON)|Connection reset|closed"),
        "the server was ending: what was in flight was answered, what came later was refused",
    ),
)


def why(event: Event, message: str) -> str | None:
    """Return what explains this failure during this event; None if nothing does."""
    for excuse in EXCUSES:
        if event in excuse.events and excuse.pattern.search(message):
            return excuse.why
    return None
