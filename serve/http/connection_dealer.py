"""Connections to one port, dealt to several processes of this machine: to whom has the fewest.

Processes that listen on one socket do not share alike: whoever wakes first takes what there is,
and clients keep their connections. Those that listen on sockets of their own with SO_REUSEPORT
get theirs by chance, and lose what has come when they die.
"""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from tempfile import TemporaryDirectory
from threading import Thread
from types import TracebackType

from serve.errors import Unavailable
from serve.http.listener import listen

# Connections that wait to be taken.
_BACKLOG = 2048
# Until the system may have what it lacks to take one: file descriptors, memory.
_LACKING_S = 0.05
# Until somebody may have room for one more.
_FULL_S = 0.005
# Closed connections that are heard of at once.
_MANY = 4096
# For those that have come before the end.
_LAST_S = 1.0


class ConnectionDealer:
    """Takes connections and passes each on to the process that has the fewest open.

    While there is none, connections wait. Who takes part connects to `place`, a Unix socket,
    receives connections there, each with a byte (`socket.recv_fds`), and sends a byte for each that
    is closed.

    Attributes:
        place: path of that socket, which only this user can reach.
    """

    def __init__(self, address: socket.socket) -> None:
        """Let processes take part.

        Args:
            address: from `serve.http.listener.take_port`; it is closed in the end.

        Raises:
            Unavailable: there is no place for the socket.
        """
        self._address = address
        self._folder = TemporaryDirectory(prefix="offramp-")
        self.place = str(Path(self._folder.name) / "socket")
        self._entrance = socket.socket(socket.AF_UNIX)
        try:
            self._entrance.bind(self.place)
        except OSError as error:  # the path is too long
            self._entrance.close()
            self._folder.cleanup()
            raise Unavailable(f"no socket at {self.place}: {error}; set TMPDIR") from None
        self._entrance.listen()
        self._takers: list[socket.socket] = []  # who has waited longest for a connection first
        self._open: dict[socket.socket, int] = {}  # connections that each has
        self._kept: list[socket.socket] = []  # connections for which nobody had room
        self._listens = self._watched = self._ends = False
        self._bell, self._ringing = socket.socketpair()
        self._selector = DefaultSelector()
        self._address.setblocking(False)
        self._watch(self._entrance, self._admit)
        self._watch(self._ringing, self._heed)
        self._thread = Thread(target=self._run, name="connection-dealer", daemon=True)
        self._thread.start()

    def __enter__(self) -> "ConnectionDealer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Deal what has come already, and refuse connections from then on.

        Those that have been dealt are not touched.
        """
        if not self._ends:
            self._ends = True
            with suppress(OSError):  # it has seen that already
                self._bell.send(b".")
            self._thread.join()
            self._bell.close()
            self._folder.cleanup()

    def listen(self) -> None:
        """Take connections from now on.

        Raises:
            PortTaken: somebody else who took the same address listens already.
        """
        listen(self._address, _BACKLOG)
        self._listens = True
        self._bell.send(b".")

    def _run(self) -> None:
        while not self._ends:
            for key, _ in self._selector.select(_FULL_S if self._kept and self._takers else None):
                key.data()
            if self._takers:
                self._deal_kept()
        self._deal_last()
        self._selector.close()
        ends = self._address, self._entrance, self._ringing
        for end in (*ends, *self._takers, *self._kept):
            end.close()

    def _watch(self, source: socket.socket, heed: Callable[[], None]) -> None:
        source.setblocking(False)
        self._selector.register(source, EVENT_READ, heed)

    def _heed(self) -> None:
        self._ringing.recv(16)
        self._watch_address()

    def _admit(self) -> None:
        if taker := _accepted(self._entrance):
            self._watch(taker, lambda: self._hear(taker))
            self._takers.append(taker)
            self._open[taker] = 0
            self._watch_address()

    def _hear(self, taker: socket.socket) -> None:
        """Hear how many of its connections are closed, or that it has left."""
        if taker not in self._takers:  # it was found out by what it was dealt a moment ago
            return
        try:
            closed = len(taker.recv(_MANY))
        except BlockingIOError:
            return
        except OSError:
            closed = 0
        if closed:
            self._open[taker] -= closed
        else:
            self._dismiss(taker)

    def _dismiss(self, taker: socket.socket) -> None:
        self._takers.remove(taker)
        del self._open[taker]
        self._selector.unregister(taker)
        taker.close()
        self._watch_address()

    def _watch_address(self) -> None:
        """Mind new connections if somebody is there to take them; the others wait."""
        wanted = self._listens and bool(self._takers) and not self._kept
        if wanted and not self._watched:
            self._watch(self._address, self._take)
        elif self._watched and not wanted:
            self._selector.unregister(self._address)
        self._watched = wanted

    def _take(self) -> None:
        if connection := _accepted(self._address):
            self._deal(connection)

    def _deal_kept(self) -> None:
        kept, self._kept = self._kept, []
        for connection in kept:
            self._deal(connection)
        self._watch_address()

    def _deal_last(self) -> None:
        """Deal what has come already: who connected has not been refused."""
        end_s = time.monotonic() + _LAST_S
        while self._listens and self._takers and time.monotonic() < end_s:
            if self._kept:
                self._deal_kept()
                time.sleep(_FULL_S)
                continue
            try:
                connection, _ = self._address.accept()
            except OSError:  # there is none
                return
            self._deal(connection)

    def _deal(self, connection: socket.socket) -> None:
        """Pass a connection on, or keep it where nobody has room.

        A process has room for hundreds that it has not taken yet, and the system for as many in
        all as this user may have open.
        """
        for taker in sorted(self._takers, key=self._open.__getitem__):
            try:
                socket.send_fds(taker, [b"."], [connection.fileno()])
            except (BrokenPipeError, ConnectionResetError):
                self._dismiss(taker)
            except OSError:
                continue
            else:
                connection.close()
                self._open[taker] += 1
                self._takers.remove(taker)
                self._takers.append(taker)
                return
        self._kept.append(connection)
        self._watch_address()


def _accepted(listening: socket.socket) -> socket.socket | None:
    try:
        return listening.accept()[0]
    except BlockingIOError:  # it has left again
        return None
    except OSError:
        time.sleep(_LACKING_S)
        return None
