"""Connections to one port, dealt in turn to several processes of this machine.

Processes that listen on one socket do not share alike: whoever wakes first takes what there is,
and clients keep their connections. Those that listen on sockets of their own with SO_REUSEPORT
get theirs by chance, and lose what has come when they die.
"""

import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from tempfile import TemporaryDirectory
from threading import Thread
from types import TracebackType

from serve.errors import Unavailable
from serve.port import listen

# Connections that wait to be taken.
_BACKLOG = 2048
# Until the system may have what it lacks to take one: file descriptors, memory.
_LACKING_S = 0.05


class ConnectionDealer:
    """Takes connections and passes each on to the next of the processes that take part.

    While there is none, connections wait. Who takes part connects to `place`, a Unix socket, and
    receives connections there, each with a byte (`socket.recv_fds`).

    Attributes:
        place: path of that socket, which only this user can reach.
    """

    def __init__(self, address: socket.socket) -> None:
        """Let processes take part.

        Args:
            address: from `serve.port.take_port`; it is closed in the end.

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
        self._takers: deque[socket.socket] = deque()
        self._kept: list[socket.socket] = []  # connections that were taken, and nobody was there
        self._listens = self._watched = self._ends = False
        self._bell, self._ringing = socket.socketpair()
        self._selector = DefaultSelector()
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
        """Refuse connections from now on; those that have been dealt are not touched."""
        if not self._ends:
            self._ends = True
            self._bell.send(b".")
            self._thread.join()
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
            for key, _ in self._selector.select():
                key.data()
        self._selector.close()
        ends = self._address, self._entrance, self._bell, self._ringing
        for end in (*ends, *self._takers, *self._kept):
            end.close()

    def _watch(self, source: socket.socket, heed: Callable[[], None]) -> None:
        source.setblocking(False)
        self._selector.register(source, EVENT_READ, heed)

    def _heed(self) -> None:
        self._ringing.recv(16)
        self._watch_address()

    def _admit(self) -> None:
        with suppress(OSError):  # it may have left again
            taker, _ = self._entrance.accept()
            self._watch(taker, lambda: self._dismiss(taker))  # it says nothing but that it leaves
            self._takers.append(taker)
            self._watch_address()
        kept, self._kept = self._kept, []
        for connection in kept:
            self._deal(connection)

    def _dismiss(self, taker: socket.socket) -> None:
        if taker not in self._takers:  # it was found out by what it was dealt a moment ago
            return
        self._takers.remove(taker)
        self._selector.unregister(taker)
        taker.close()
        self._watch_address()

    def _watch_address(self) -> None:
        """Mind new connections if somebody is there to take them."""
        wanted = self._listens and bool(self._takers)
        if wanted and not self._watched:
            self._watch(self._address, self._take)
        elif self._watched and not wanted:
            self._selector.unregister(self._address)
        self._watched = wanted

    def _take(self) -> None:
        try:
            connection, _ = self._address.accept()
        except BlockingIOError:  # it has left again
            return
        except OSError:
            time.sleep(_LACKING_S)
            return
        self._deal(connection)

    def _deal(self, connection: socket.socket) -> None:
        """Pass a connection on; where everybody has hundreds to take already, it is closed."""
        for _ in range(len(self._takers)):
            taker = self._takers[0]
            self._takers.rotate(-1)
            try:
                socket.send_fds(taker, [b"."], [connection.fileno()])
            except BlockingIOError:
                continue
            except OSError:
                self._dismiss(taker)
            else:
                connection.close()
                return
        if self._takers:
            connection.close()
        else:
            self._kept.append(connection)
