import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from selectors import EVENT_READ
from typing import Any

import pytest

from serve.errors import Unavailable
from serve.http.connection_dealer import ConnectionDealer
from serve.http.listener import PortTaken, take_port
from tests.support.patience import until

TIMEOUT_S = 60.0


class Scene:
    """A dealer, who takes part, and who connects."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.address = take_port("127.0.0.1", 0)
        self.name = self.address.getsockname()
        self.dealer = ConnectionDealer(self.address)
        self._stack.enter_context(self.dealer)

    def close(self) -> None:
        self._stack.close()

    def taker(self) -> socket.socket:
        taker = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        taker.settimeout(TIMEOUT_S)
        taker.connect(self.dealer.place)
        return taker

    def client(self) -> socket.socket:
        return self._stack.enter_context(socket.create_connection(self.name, TIMEOUT_S))

    @contextmanager
    def dealer_held(self) -> Iterator[None]:
        """Let the dealer see all at once, in the end, what happens in the block."""
        bell, ringing = socket.socketpair()
        held, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            ringing.recv(1)
            held.set()
            go_on.wait(TIMEOUT_S)

        with bell, ringing:
            self.dealer._selector.register(ringing, EVENT_READ, hold)
            bell.send(b".")
            assert held.wait(TIMEOUT_S)
            yield
            self.dealer._selector.unregister(ringing)
            go_on.set()

    def takers(self, number: int) -> list[socket.socket]:
        """Return who takes part, once the dealer knows them all."""
        takers = [self.taker() for _ in range(number)]
        until(lambda: len(self.dealer._takers) == number)
        return takers


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()


def dealt(taker: socket.socket) -> socket.socket:
    """Return the next connection that a taker gets."""
    _, [received], _, _ = socket.recv_fds(taker, 1, 1)
    return socket.socket(fileno=received)


def peer_of_dealt(taker: socket.socket) -> object:
    with dealt(taker) as connection:
        return connection.getpeername()


def test_everybody_gets_the_same_number_of_connections(scene: Scene) -> None:
    takers = scene.takers(3)
    scene.dealer.listen()
    clients = {scene.client().getsockname() for _ in range(12)}
    assert {peer_of_dealt(taker) for taker in takers for _ in range(4)} == clients


def test_who_has_the_fewest_open_gets_the_next(scene: Scene) -> None:
    first, second = scene.takers(2)
    scene.dealer.listen()
    for _ in range(4):
        scene.client()
    for _ in range(2):
        dealt(second).close()
    second.sendall(b"..")
    until(lambda: sorted(scene.dealer._open.values()) == [0, 2])
    for _ in range(2):
        client = scene.client()
        assert peer_of_dealt(second) == client.getsockname()
    for _ in range(2):
        dealt(first).close()
    last = {scene.client().getsockname() for _ in range(2)}
    assert {peer_of_dealt(first), peer_of_dealt(second)} == last


def test_who_comes_later_gets_new_ones_until_it_has_as_many(scene: Scene) -> None:
    [first] = scene.takers(1)
    scene.dealer.listen()
    for _ in range(3):
        scene.client()
        dealt(first).close()
    second = scene.taker()
    until(lambda: len(scene.dealer._takers) == 2)
    for _ in range(3):
        client = scene.client()
        assert peer_of_dealt(second) == client.getsockname()
    last = {scene.client().getsockname() for _ in range(2)}
    assert {peer_of_dealt(first), peer_of_dealt(second)} == last


def test_connections_are_refused_until_they_are_wanted(scene: Scene) -> None:
    scene.takers(1)
    with pytest.raises(ConnectionRefusedError):
        scene.client()


def test_connections_wait_for_the_first_to_take_part(scene: Scene) -> None:
    scene.dealer.listen()
    client = scene.client()
    client.sendall(b"hello")
    with dealt(scene.taker()) as connection:
        assert connection.recv(5) == b"hello"


def test_who_leaves_gets_no_more_and_the_rest_does(scene: Scene) -> None:
    first, second = scene.takers(2)
    scene.dealer.listen()
    first.close()
    for _ in range(4):
        assert scene.client().getsockname() == peer_of_dealt(second)
    second.close()
    until(lambda: not scene.dealer._takers)
    client = scene.client()
    assert peer_of_dealt(scene.taker()) == client.getsockname()


@pytest.mark.parametrize("leaves_first", [True, False])
def test_connections_that_come_as_the_last_one_leaves_are_for_its_successor(
    scene: Scene, leaves_first: bool
) -> None:
    [last] = scene.takers(1)
    scene.dealer.listen()
    with scene.dealer_held():
        clients = [scene.client() for _ in range(0 if leaves_first else 3)]
        last.close()
        clients += [scene.client() for _ in range(3 - len(clients))]
    until(lambda: not scene.dealer._takers)
    successor = scene.taker()
    names = {client.getsockname() for client in clients}
    assert {peer_of_dealt(successor) for _ in clients} == names


def test_who_only_stops_reading_gets_no_more(scene: Scene) -> None:
    first, second = scene.takers(2)
    scene.dealer.listen()
    first.shutdown(socket.SHUT_RD)
    for _ in range(4):
        assert scene.client().getsockname() == peer_of_dealt(second)


def test_who_does_not_take_its_own_does_not_keep_others_from_theirs(scene: Scene) -> None:
    _, other = scene.takers(2)
    scene.dealer._takers[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # room for a few
    scene.dealer.listen()
    for _ in range(60):
        scene.client()
    for _ in range(40):
        dealt(other).close()


def test_connections_wait_while_nobody_has_room(scene: Scene) -> None:
    [taker] = scene.takers(1)
    scene.dealer._takers[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # room for a few
    scene.dealer.listen()
    names = {scene.client().getsockname() for _ in range(60)}
    assert {peer_of_dealt(taker) for _ in range(60)} == names


def test_what_the_system_lacks_for_a_moment_costs_nobody_a_place(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    [taker] = scene.takers(1)
    send, failures = socket.send_fds, [errno.ETOOMANYREFS, errno.ENOBUFS]

    def lacking(*given: Any) -> int:
        if failures:
            raise OSError(failures.pop(), "")
        return send(*given)

    monkeypatch.setattr(socket, "send_fds", lacking)
    scene.dealer.listen()
    client = scene.client()
    assert peer_of_dealt(taker) == client.getsockname()
    assert not failures


def test_who_has_connected_before_the_end_is_dealt_to(scene: Scene) -> None:
    [taker] = scene.takers(1)
    scene.dealer.listen()
    with scene.dealer_held():
        names = {scene.client().getsockname() for _ in range(20)}
        closing = threading.Thread(target=scene.dealer.close)
        closing.start()
        until(lambda: scene.dealer._ends)
    closing.join()
    assert {peer_of_dealt(taker) for _ in range(20)} == names
    assert taker.recv(1) == b""


def test_at_the_end_connections_are_refused_and_what_was_dealt_goes_on(scene: Scene) -> None:
    [taker] = scene.takers(1)
    scene.dealer.listen()
    client = scene.client()
    with dealt(taker) as connection:
        place = Path(scene.dealer.place)
        scene.dealer.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(scene.name, TIMEOUT_S)
        assert taker.recv(1) == b""
        assert not place.parent.exists()
        client.sendall(b"hello")
        assert connection.recv(5) == b"hello"
        client.close()


def test_dealer_that_has_seen_its_end_before_it_is_told_leaves_nothing(scene: Scene) -> None:
    dealer = scene.dealer
    dealer._ends = True
    dealer._bell.send(b".")
    dealer._thread.join()
    dealer._ends = False
    dealer.close()
    assert not Path(dealer.place).parent.exists()


def test_address_at_which_somebody_else_listens_is_refused(scene: Scene) -> None:
    with take_port(*scene.name) as other:
        other.listen()
        with pytest.raises(PortTaken, match="Address already in use"):
            scene.dealer.listen()


def test_only_this_user_may_take_part(scene: Scene) -> None:
    assert Path(scene.dealer.place).parent.stat().st_mode & 0o777 == 0o700


def test_place_that_is_too_long_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("too-long-for-a-socket" * 5)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with (
        take_port("127.0.0.1", 0) as address,
        pytest.raises(Unavailable, match="AF_UNIX path too long; set TMPDIR"),
    ):
        ConnectionDealer(address)
    assert not list(folder.iterdir())
