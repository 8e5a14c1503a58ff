import socket

import pytest

from serve.http.listener import PortTaken, listen, take_port


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


def test_port_is_nobody_elses_until_it_is_given_back() -> None:
    with take_port("127.0.0.1", 0) as taken:
        address = taken.getsockname()
        with pytest.raises(OSError, match="Address already in use"):
            listener(address)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
    listener(address).close()


def test_connections_of_the_last_server_do_not_keep_the_next_from_its_port() -> None:
    with listener(("127.0.0.1", 0), socket.SO_REUSEADDR) as last:
        address = last.getsockname()
        with socket.create_connection(address) as client:
            last.accept()[0].close()  # who closes first waits
            assert client.recv(1) == b""
    with take_port(*address) as taken:
        listen(taken, 1)


def test_port_of_another_servers_proxy_is_refused() -> None:
    proxy = listener(("127.0.0.1", 0), socket.SO_REUSEPORT)
    with proxy, pytest.raises(PortTaken, match="Address already in use"):
        take_port(*proxy.getsockname())


def test_of_two_who_took_a_port_one_listens() -> None:
    with take_port("127.0.0.1", 0) as first, take_port(*first.getsockname()) as second:
        listen(first, 1)
        with pytest.raises(PortTaken, match="Address already in use"):
            listen(second, 1)
