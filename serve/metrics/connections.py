"""What the HTTP server of this process tells the app and the metrics about its connections."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


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
