"""The limits of an HTTP server, and what it tells of its connections."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pydantic import ConfigDict, PositiveFloat, PositiveInt

# A stopping server works this long on the requests that it has admitted.
DRAIN_S: Final = 30


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds on the connections of one process.

    Attributes:
        head_timeout_s: time for a request line with headers, and for a TLS handshake.
        idle_timeout_s: time until a kept connection's next request, and for taking an answer.
        body_timeout_s: time for a whole body.
        min_body_rate: bytes/s, averaged over a body that takes longer than 5 s.
        max_head_bytes: largest request line with headers.
        max_connections: open at once; fewer if file descriptors do not suffice.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    head_timeout_s: PositiveFloat = 10.0
    # As Ray Serve's proxy. Clients and load balancers keep an idle connection for a minute. A
    # server that closes it first may lose a request that is just being sent.
    idle_timeout_s: PositiveFloat = 90.0
    body_timeout_s: PositiveFloat = 60.0
    min_body_rate: PositiveInt = 1000
    max_head_bytes: PositiveInt = 64 * 1024
    max_connections: PositiveInt = 4096


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
    """What a server tells of its connections. Belongs to the event loop.

    Attributes:
        stopping: whether the server wants no new requests; it still answers those that arrive.
        num_open: connections, with those whose TLS handshake goes on.
        closed: connections by the reason why the server has ended them.
    """

    stopping: bool = False
    num_open: int = 0
    closed: Counter[Closed] = field(default_factory=Counter)
