"""The address to listen on.

The address is taken before anything is started and listened on once models are loaded. Until then
connections are refused, and no other program can get the port.
"""

import socket

from serve.errors import OfframpError

BACKLOG = 2048
# Of a connection, in the kernel, beside what is on its way.
UNSENT_BYTES = 128 * 1024


class PortTaken(OfframpError):
    """The address cannot be had, mostly because another server listens there."""

    code = "port_taken"


def take_port(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address, for one process.

    Args:
        host: an address of this machine.
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
        address = probe.getsockname()
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
        host, port = taken.getsockname()
        raise _port_taken(host, port, error) from None


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


def _bound(host: str, port: int, *options: int) -> socket.socket:
    bound = socket.socket()
    try:
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise _port_taken(host, port, error) from None
    return bound


def _port_taken(host: str, port: int, error: OSError) -> PortTaken:
    return PortTaken(
        f"cannot listen on {host}:{port}: {error.strerror}; choose another port or host"
    )
