"""The address to listen on.

The address is taken before anything is started and listened on once models are loaded. Until then
connections are refused, and no other program can get the port.
"""

import socket
from typing import Any

from serve.errors import OfframpError

BACKLOG = 2048
# Bytes of a connection that the kernel holds, beside what is on its way.
UNSENT_BYTES = 128 * 1024


class PortTaken(OfframpError):
    """The address cannot be had, mostly because another server listens there."""

    code = "port_taken"


def take_port(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address, for one process.

    Args:
        host: an address of this machine, or a name; IPv6 also in brackets. On `::` IPv4 is
            listened on too.
        port: 0 for any that is free.

    Raises:
        PortTaken: the address cannot be had.
    """
    return _bound(host, port, socket.SO_REUSEADDR)


def take_shared_port(host: str, port: int) -> socket.socket:
    """Return a socket that holds an address for `listen_shared`, and never listens itself.

    Processes of the same user may share a port with SO_REUSEPORT, two servers by mistake too.
    Three binds prevent that. The first has no SO_REUSEPORT, so it fails where any server listens.
    The second gets past the last server's connections in TIME_WAIT, which the third could not. The
    third stays: as it lacks SO_REUSEADDR, the first bind of another server fails from then on.

    Raises:
        PortTaken: the address cannot be had.
    """
    with take_port(host, port) as probe:
        address = address_of(probe)
        with _bound(*address, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            return _bound(*address, socket.SO_REUSEPORT)


def listen(taken: socket.socket) -> None:
    """Listen on the address of `take_port`, without blocking.

    Raises:
        PortTaken: another process listens there.
    """
    try:
        taken.listen(BACKLOG)
        taken.setblocking(False)
        _prepare_connections(taken)
    except OSError as error:
        raise _port_taken(*address_of(taken), error) from None


def listen_shared(host: str, port: int) -> socket.socket:
    """Return a non-blocking socket that listens beside those of other processes.

    The kernel deals each new connection to one of the listening sockets. When one closes, the
    connections in its accept queue are reset.

    Raises:
        PortTaken: another user's process, or one without SO_REUSEPORT, has the address.
    """
    listening = _bound(host, port, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    listening.setblocking(False)
    _prepare_connections(listening)
    listening.listen(BACKLOG)
    return listening


def _prepare_connections(listening: socket.socket) -> None:
    """Set what connections inherit."""
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        # The kernel would take megabytes for each client that does not read its answer.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def address_of(listening: socket.socket) -> tuple[str, int]:
    """Return host and port of a socket of either family."""
    host, port = listening.getsockname()[:2]
    return host, port


def in_url(host: str) -> str:
    """Return a host as URLs have it: an IPv6 address in brackets."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


def without_brackets(host: str) -> str:
    """Return a host as sockets take it."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _bound(host: str, port: int, *options: int) -> socket.socket:
    try:
        family, address = _resolve(host, port)
        bound = socket.socket(family)
    except (OSError, UnicodeError) as error:
        raise _port_taken(host, port, error) from None
    try:
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:  # the system's default may be IPv6 alone
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _port_taken(host, port, error) from None
    return bound


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Return family and address of a host; of a name with both families, IPv4's."""
    found = socket.getaddrinfo(without_brackets(host), port, type=socket.SOCK_STREAM)
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, address


def _port_taken(host: str, port: int, error: Exception) -> PortTaken:
    reason = getattr(error, "strerror", None) or "no such host"
    return PortTaken(
        f"cannot listen on {in_url(host)}:{port}: {reason}; choose another port or host"
    )
