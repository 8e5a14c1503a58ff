"""uvicorn's HTTP, for what clients do that it does not allow for.

Requests that propose another protocol keep their body.
Java's HttpClient and `curl --http2` propose HTTP/2 with a request. A server may ignore that (RFC
9110, section 7.8), and uvicorn does; but httptools takes what follows the head for the other
protocol's, so that the app finds no body. h11 reads it, and is slower: it gets the connections on
which something is proposed, from then on.

Of requests on a connection that come before the first of them is answered, that one hears of its
client's leaving, too. uvicorn tells the newest, which waits for its turn.
"""

import re
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_PROPOSAL = re.compile(rb"\r\nupgrade[ \t]*:", re.IGNORECASE)


class HttpProtocol(HttpToolsProtocol):
    """Reads requests with httptools until a head that comes whole proposes another protocol."""

    _within_request = False
    _answering: Any = None

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answering and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._within_request = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._within_request = False
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        answered = self.cycle is None or self.cycle.response_complete
        if answered and not self._within_request and _PROPOSAL.search(data):
            self._unset_keepalive_if_required()
            self.connections.discard(self)
            heir = _Heir(self)
            self.transport.set_protocol(heir)
            heir.connection_made(self.transport)
            heir.data_received(data)
        else:
            super().data_received(data)


class _Heir(H11Protocol):
    """Reads the requests of a connection with h11."""

    def __init__(self, before: HttpProtocol) -> None:
        super().__init__(before.config, before.server_state, before.app_state)
        self._before: Any = before

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._before.connection_lost(exc)  # which somebody may be waiting for

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: to propose is the clients' right, and some do with every request."""
