"""The address to listen on: taken before anything is started, so that it is still ours then.

Models are loaded and processes started before somebody listens; meanwhile the system would give a
port that was only found free to the next who asks for any.
"""

import socket

from serve.errors import OfframpError


class PortTaken(OfframpError):
    """Something else listens there."""

    code = "port_taken"


def take_port(host: str, port: int) -> socket.socket:
    """Return a socket that has the address, to listen with.

    Whom the system gives any port does not get this one.

    Args:
        host: of this machine.
        port: 0 for any that is free.

    Raises:
        PortTaken: it cannot be had.
    """
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except OSError as error:
        taken.close()
        raise _port_taken(host, port, error) from None
    return taken


def listen(taken: socket.socket, backlog: int) -> None:
    """Listen on the address of `take_port`.

    uvloop, asked to do it, says nothing of it where somebody else listens by now.

    Raises:
        PortTaken: as it says.
    """
    try:
        taken.listen(backlog)
    except OSError as error:
        host, port = taken.getsockname()
        raise _port_taken(host, port, error) from None


def _port_taken(host: str, port: int, error: OSError) -> PortTaken:
    return PortTaken(
        f"cannot listen on {host}:{port}: {error.strerror}; choose another --port or --host"
    )
