import socket
from collections.abc import Callable

import pytest

from serve.http.listener import (
    PortTaken,
    address_of,
    listen,
    listen_shared,
    take_port,
    take_shared_port,
)

TAKE = pytest.mark.parametrize("take", [take_port, take_shared_port])

Take = Callable[[str, int], socket.socket]


def listener(address: tuple[str, int], *options: int) -> socket.socket:
    listening = socket.socket()
    for option in options:
        listening.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    listening.listen()
    return listening


@TAKE
def test_taken_port_refuses_connections_and_other_programs_until_it_is_closed(take: Take) -> None:
    with take("127.0.0.1", 0) as taken:
        address = taken.getsockname()
        with pytest.raises(OSError, match="in use"):
            listener(address)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
    listener(address).close()


@TAKE
@pytest.mark.parametrize(
    ("host", "reached_by"),
    [
        ("::1", ["::1"]),
        ("[::1]", ["::1"]),
        ("::", ["::1", "127.0.0.1"]),
        ("0.0.0.0", ["127.0.0.1"]),
        ("localhost", ["127.0.0.1"]),
    ],
)
def test_ipv6_is_listened_on_as_ipv4_is(take: Take, host: str, reached_by: list[str]) -> None:
    with take(host, 0) as taken:
        _, port = address_of(taken)
        listening = taken
        if take is take_shared_port:
            listening = listen_shared(*address_of(taken))
        else:
            listen(taken)
        with listening:
            for each in reached_by:
                socket.create_connection((each, port), timeout=5).close()
            with pytest.raises(PortTaken):
                take(host, port)


def test_host_that_does_not_exist_is_said() -> None:
    for host in ("no.such.host.invalid", "::1::", "[]"):
        with pytest.raises(PortTaken):
            take_port(host, 0)


@TAKE
@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
def test_port_on_which_another_server_listens_is_refused(take: Take, option: int) -> None:
    with listener(("127.0.0.1", 0), option) as other, pytest.raises(PortTaken):
        take(*other.getsockname())


@TAKE
def test_port_of_a_server_that_is_still_starting_is_refused(take: Take) -> None:
    with take_shared_port("127.0.0.1", 0) as first, pytest.raises(PortTaken):
        take(*first.getsockname())


def test_of_two_who_took_a_port_for_one_process_one_listens() -> None:
    with take_port("127.0.0.1", 0) as first, take_port(*first.getsockname()) as second:
        listen(first)
        with pytest.raises(PortTaken):
            listen(second)


@TAKE
@pytest.mark.parametrize("shared", [True, False])
def test_connections_of_the_last_server_do_not_keep_the_next_from_its_port(
    take: Take, shared: bool
) -> None:
    with take_shared_port("127.0.0.1", 0) as taken:
        address = taken.getsockname()
        last = listen_shared(*address)
    if not shared:
        last.close()
        last = listener(address, socket.SO_REUSEADDR)
    with last, socket.create_connection(address) as client:
        last.setblocking(True)
        last.accept()[0].close()  # the side that closes first stays in TIME_WAIT
        assert client.recv(1) == b""
    with take(*address) as taken:
        if take is take_port:
            listen(taken)
        else:
            listen_shared(*address).close()


def test_several_sockets_share_a_port_and_each_gets_connections() -> None:
    with take_shared_port("127.0.0.1", 0) as taken:
        address = taken.getsockname()
        with listen_shared(*address) as first, listen_shared(*address) as second:
            clients = [socket.create_connection(address) for _ in range(64)]
            dealt = [num_waiting(listening) for listening in (first, second)]
            assert sum(dealt) == 64
            assert all(dealt)
            for client in clients:
                client.close()


def num_waiting(listening: socket.socket) -> int:
    """Accept every connection that waits."""
    for number in range(1000):
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            return number
    raise AssertionError("more connections than were made")


def test_address_without_reuse_is_not_shared() -> None:
    with listener(("127.0.0.1", 0)) as other, pytest.raises(PortTaken):
        listen_shared(*other.getsockname())
