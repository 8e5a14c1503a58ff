"""`offramp serve` as a real process, with every process that it starts."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

import httpx
import psutil
import pytest

from loadtest.http.server_process import OFFRAMP, ChildProcess
from serve.cli import main
from tests.serve.support.live_server import LiveServer, raw_request
from tests.support.patience import until
from tests.support.tiny import WORDS

START_S = 240.0  # Ray alone takes two minutes when the cores are very busy
STOP_S = 120.0

_Found = TypeVar("_Found")


class ServerProcess(ChildProcess):
    """`offramp serve`, on a port that it chooses itself."""

    def __init__(self, *arguments: str | Path, through: Sequence[str] = ()) -> None:
        """Take the command's arguments, and a command that runs the one behind it."""
        super().__init__([*through, OFFRAMP, "serve", *map(str, arguments)])
        self._resources = ExitStack()
        self._client: LiveServer | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._resources:
            super().__exit__(kind, error, trace)

    def curl_line(self) -> str:
        """Wait until the server is ready and return the command that it prints."""
        return self.started(self._invitation)[2]

    def started(self, ready: Callable[[], _Found | None]) -> _Found:
        """Wait until `ready` finds something; fail with what was printed if it never does."""
        end_s = time.monotonic() + START_S
        while not (found := ready()):
            assert self.status(0.01) is None, f"ended before it was ready:\n{self.output}"
            assert time.monotonic() < end_s, f"not ready after {START_S:g} s:\n{self.output}"
        return found

    def client(self) -> LiveServer:
        """Wait until the server is ready and return a client for it."""
        if self._client is None:
            self.curl_line()
            found = self._invitation()
            assert found
            self._client = LiveServer(int(found[1]))
            self._resources.callback(self._client.http.close)
        return self._client

    def send_to_group(self, number: signal.Signals) -> None:
        """Send a signal to every process of the server's group, as a terminal does."""
        self.left()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def exit_status(self) -> int | None:
        """Wait for the end."""
        return self.status(STOP_S)

    def left(self) -> set[psutil.Process]:
        """Return what runs now of all that the server has ever been seen to start."""
        return self.family.running()

    def replicas(self) -> set[psutil.Process]:
        """Return the processes of Ray Serve replicas."""
        return self.family.titled("ServeReplica")

    def _invitation(self) -> re.Match[str] | None:
        return re.search(r"serving on https?://[^:]+:(\d+) .*\n?.*(curl .*)\n", self.output)


@contextmanager
def requests_in_flight(server: LiveServer) -> Iterator[Callable[[], list[int]]]:
    """Yield a function that waits for the statuses of eight requests.

    Seven of them are admitted, one is not completely sent. The server must be idle before.
    """
    big = {"inputs": [" ".join(WORDS[:60])] * 192}
    # Most of the body is sent at once: a body that stands still must not be too slow on average.
    content = b" " * 60_000 + json.dumps({"inputs": "w1"}).encode()
    whole = raw_request("/v1/classify", content, Connection="close")
    with server.half_sent(whole[:-5]) as unfinished, ThreadPoolExecutor(7) as pool:
        server.answer("w1")
        before = server.metric("offramp_exits_total")
        asked = [pool.submit(server.http.post, "/v1/classify", json=big) for _ in range(7)]
        until(lambda: _all_admitted(server, before + 7 * 192) or _all_done(asked))

        def statuses() -> list[int]:
            unfinished.sendall(whole[-5:])
            first_line = unfinished.makefile("rb").readline()
            return [int(first_line.split()[1]), *(future.result().status_code for future in asked)]

        yield statuses


def statuses_of_requests_in_flight_at(number: signal.Signals, process: ServerProcess) -> list[int]:
    """Signal a server with `requests_in_flight`; return the statuses of the answers."""
    with requests_in_flight(process.client()) as statuses:
        process.send(number)
        return statuses()


@contextmanager
def asking(server: LiveServer) -> Iterator[Counter[str]]:
    """Send requests throughout a block, on new and on kept connections; yield the outcomes.

    An outcome is status and content type, or `refused` where there was no answer. An answer that
    has begun must be complete.
    """
    outcomes: Counter[str] = Counter()
    ended = threading.Event()

    def ask(headers: dict[str, str]) -> None:
        with httpx.Client(transport=httpx.HTTPTransport(verify=False)) as http:
            while not ended.wait(0.005):
                outcomes[_outcome(http, f"{server.http.base_url}/v1/classify", headers)] += 1

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, h) for h in ({}, {"Connection": "close"}) * 2]
        try:
            yield outcomes
        finally:
            ended.set()
    for future in asked:
        future.result()


def _outcome(http: httpx.Client, url: str, headers: dict[str, str]) -> str:
    request = http.build_request("POST", url, json={"inputs": "w1"}, headers=headers)
    try:
        response = http.send(request, stream=True)
    except httpx.TransportError:
        return "refused"
    response.read()
    return f"{response.status_code} {response.headers['content-type']}"


def _all_admitted(server: LiveServer, num_rows: float) -> bool:
    depth, answered = server.metric("offramp_queue_depth"), server.metric("offramp_exits_total")
    return depth + answered >= num_rows


def _all_done(asked: Sequence[Future[object]]) -> bool:
    return all(future.done() for future in asked)


class Ran(NamedTuple):
    """How a command has ended, and what it has printed."""

    status: int
    said: str
    error: str


def run_offramp(*arguments: str | Path, columns: int = 120) -> Ran:
    """Run a command that ends by itself, in this process, without those of other packages."""
    handler = signal.getsignal(signal.SIGTERM)
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as said,
        redirect_stderr(io.StringIO()) as error,
        pytest.raises(SystemExit) as ended,
    ):
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("TERM", "dumb")
        patch.setattr(sys, "argv", ["offramp", *map(str, arguments)])
        # Each call of `main` would add them once more.
        patch.setattr("serve.cli.entry_points", lambda group: ())
        try:
            main()
        finally:
            signal.signal(signal.SIGTERM, handler)
    assert isinstance(ended.value.code, int)
    return Ran(ended.value.code, said.getvalue(), error.getvalue())


def run_offramp_alone(*arguments: str | Path) -> Ran:
    """Run a command that ends by itself, in a process of its own."""
    done = subprocess.run(
        [OFFRAMP, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
        env={**os.environ, "COLUMNS": "120", "TERM": "dumb"},
    )
    return Ran(done.returncode, done.stdout, done.stderr)
