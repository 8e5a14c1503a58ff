"""Clients that go on asking while the server stops."""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import serve.http.server
from serve.tokenization.inputs import Input, InputReader
from serve.tokenization.tokenizer import Tokens
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.server_process import ServerProcess
from tests.support.patience import until

NUM_CLIENTS = 8
THINKS_S = 0.3
BODY = b'{"inputs": "w1"}'


class Answer(NamedTuple):
    """What a client notes of an answer."""

    path: str
    status: int
    closes: bool


class Client:
    """Asks for answers and readiness by turns, on one connection until that is to be closed.

    Attributes:
        answers: in order.
        lost: errors of requests that were sent on accepted connections.
    """

    def __init__(self, port: int, thinks_s: float) -> None:
        self._port, self._thinks_s = port, thinks_s
        self.answers: list[Answer] = []
        self.lost: list[str] = []

    def ask_until_refused(self) -> None:
        while not self.lost:
            connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
            try:
                connection.connect()
            except OSError:
                return
            with closing(connection):
                self._ask_until_closed(connection)

    def _ask_until_closed(self, connection: HTTPConnection) -> None:
        try:
            while not self._answer(connection).closes:
                time.sleep(self._thinks_s)
        except (OSError, HTTPException) as error:
            self.lost.append(repr(error))

    def _answer(self, connection: HTTPConnection) -> Answer:
        if len(self.answers) % 2:
            path = "/health/ready"
            connection.request("GET", path)
        else:
            path = "/v1/classify"
            connection.request("POST", path, BODY, {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            response.read()
            assert response.headers["content-type"] == "application/json"
            closes = response.headers["connection"] == "close"
            self.answers.append(Answer(path, response.status, closes))
        return self.answers[-1]


@contextmanager
def asking(server: LiveServer) -> Iterator[list[Client]]:
    """Ask throughout a block, in the end of which the server must have stopped.

    Half of the clients wait between two requests, for less than the grace of a stop.
    """
    clients = [Client(server.port, (0.0, THINKS_S)[i % 2]) for i in range(NUM_CLIENTS)]
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        asked = [pool.submit(client.ask_until_refused) for client in clients]
        until(lambda: all(len(client.answers) > 4 or client.lost for client in clients))
        yield clients
    for future in asked:
        future.result()


def lost(clients: list[Client]) -> list[str]:
    return [error for client in clients for error in client.lost]


def check_announced(clients: list[Client]) -> None:
    """Check that every answer in the grace of the stop said so, and `/health/ready` failed."""
    answers = {answer for client in clients for answer in client.answers}
    assert answers == {
        Answer("/v1/classify", 200, closes=False),
        Answer("/health/ready", 200, closes=False),
        Answer("/v1/classify", 200, closes=True),
        Answer("/health/ready", 503, closes=True),
    }
    for client in clients:
        announced = [answer.closes for answer in client.answers]
        assert announced == sorted(announced)


def test_no_request_is_lost_when_a_process_is_told_to_stop(bundle_folder: Path) -> None:
    with ServerProcess(bundle_folder, "--standalone", "--port", "0") as process:
        with asking(process.client()) as clients:
            process.send(signal.SIGTERM)
            assert process.exit_status() == 0
        assert not lost(clients)
        check_announced(clients)
        assert process.output.splitlines()[-1] == "stopped"


def test_no_request_is_lost_when_the_listener_closes_at_once(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.http.server, "FIRST_REQUEST_S", 1.0)
    with ExitStack() as serving:
        server = serving.enter_context(serving_bundles(bundle_folder))
        with asking(server) as clients:
            serving.close()
    assert not lost(clients)


def test_stop_does_not_wait_for_texts_that_are_still_to_be_tokenized(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.http.server, "DRAIN_S", 1)
    read, begun, released = InputReader.read, threading.Semaphore(0), threading.Event()

    def held(
        reader: InputReader, inputs: Sequence[Input], truncate: bool, *rest: Any, **more: Any
    ) -> list[Tokens]:
        begun.release()
        assert released.wait(60)
        return read(reader, inputs, truncate, *rest, **more)

    monkeypatch.setattr(InputReader, "read", held)
    pieces = ["w1 " * 20 + " " * 3000] * 80  # four of them
    with ExitStack() as serving, ThreadPoolExecutor(4) as pool:
        server = serving.enter_context(serving_bundles(bundle_folder, tokenizer_threads=1))
        asked = [pool.submit(server.classify, pieces) for _ in range(3)]
        assert begun.acquire(timeout=60)
        pool.submit(serving.close).result(30)
        released.set()
        for future in asked:
            assert future.exception() or future.result().status_code >= 500
    assert not begun.acquire(timeout=0.5)
