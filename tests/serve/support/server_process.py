"""`offramp serve` as a real process, with every process that it starts."""

import json
import os
import re
import signal
import subprocess
import sysconfig
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import httpx

from tests.serve.support.live_server import LiveServer
from tests.support.patience import until
from tests.support.tiny import WORDS

START_S = 180.0
STOP_S = 120.0
OFFRAMP = str(Path(sysconfig.get_path("scripts")) / "offramp")


class Running(NamedTuple):
    """A process; the start time tells it from a later one with the same id."""

    pid: int
    started: str


class ServerProcess:
    """A server that ends with its block, whatever happened."""

    def __init__(self, *arguments: str | Path) -> None:
        self._arguments = arguments
        self._resources = ExitStack()
        self._known: set[Running] = set()
        self._client: LiveServer | None = None

    def __enter__(self) -> Self:
        self._log = self._resources.enter_context(tempfile.TemporaryFile())
        self._process = subprocess.Popen(
            [OFFRAMP, "serve", *map(str, self._arguments)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for running in self.left():
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGKILL)
        self._process.wait()
        self._resources.close()

    @property
    def output(self) -> str:
        """Everything printed so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def curl_line(self) -> str:
        """Wait for the invitation and return the command that it proposes."""
        found = until(lambda: self._invitation() or self._process.poll() is not None, START_S)
        assert isinstance(found, re.Match), self.output
        return found[2]

    def client(self) -> LiveServer:
        """Wait for the invitation and return the client for the address in it."""
        if self._client is None:
            self.curl_line()
            found = self._invitation()
            assert found
            self._client = LiveServer(int(found[1]))
            self._resources.callback(self._client.http.close)
        return self._client

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server's own process only."""
        self.left()
        self._process.send_signal(number)

    def press_ctrl_c(self) -> None:
        """Interrupt every process of the server's group, as a terminal does."""
        self.left()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def exit_status(self) -> int:
        """Wait for the end."""
        return self._process.wait(STOP_S)

    def left(self) -> set[Running]:
        """Return what runs now of all that the server has ever been seen to start."""
        now = _processes()
        family = {self._process.pid}
        while True:
            more = {p for p, s in now.items() if s.parent in family or s.session in family} - family
            if not more:
                break
            family |= more
        self._known |= {Running(pid, now[pid].started) for pid in family if pid in now}
        return {r for r in self._known if r.pid in now and now[r.pid].started == r.started}

    def replicas(self) -> set[Running]:
        """Return the processes of Ray Serve replicas."""
        return self.titled(b"ServeReplica")

    def titled(self, name: bytes) -> set[Running]:
        """Return the processes with this in their command line."""
        return {running for running in self.left() if name in _title(running.pid)}

    def titles(self) -> list[bytes]:
        """Return the command lines of all processes."""
        return [_title(running.pid) for running in self.left()]

    def _invitation(self) -> re.Match[str] | None:
        return re.search(r"serving on http://[^:]+:(\d+) .*\n  (curl .*)\n", self.output)


class _Status(NamedTuple):
    parent: int
    session: int
    started: str


def _processes() -> dict[int, _Status]:
    """Return all processes but zombies, from /proc (see proc(5))."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                status = _Status(int(fields[1]), int(fields[3]), fields[19])
                found[int(stat.parent.name)] = status
    return found


def _title(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@contextmanager
def requests_in_flight(server: LiveServer) -> Iterator[Callable[[], list[int]]]:
    """Ask a server that is otherwise idle; yield what waits for the answers' statuses.

    Some requests are being computed; one has not even been sent completely.
    """
    big = {"inputs": [" ".join(WORDS[:60])] * 256}
    content = json.dumps({"inputs": "w1"}).encode()
    head = (
        "POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    with (
        server.half_sent(head.encode() + content[:5]) as unfinished,
        ThreadPoolExecutor(7) as pool,
    ):
        server.answer("w1")
        before = server.metric("offramp_exits_total")
        asked = [pool.submit(server.http.post, "/v1/classify", json=big) for _ in range(7)]
        until(lambda: _all_admitted(server, before + 7 * 256) or _all_done(asked))

        def statuses() -> list[int]:
            unfinished.sendall(content[5:])
            first_line = unfinished.makefile("rb").readline()
            return [int(first_line.split()[1]), *(future.result().status_code for future in asked)]

        yield statuses


def statuses_of_requests_in_flight_at(number: signal.Signals, process: ServerProcess) -> list[int]:
    """Signal a server that has requests of all sorts in flight; return how they were answered."""
    with requests_in_flight(process.client()) as statuses:
        process.send(number)
        return statuses()


@contextmanager
def asking(server: LiveServer) -> Iterator[Counter[str]]:
    """Ask for answers all through a block, on new connections and on kept ones; count outcomes.

    They are status and content type, or `refused` where there was no answer at all. An answer
    that has begun must come whole.
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


def run_offramp(*arguments: str | Path, timeout_s: float = START_S) -> tuple[int, str, str]:
    """Run a command that ends by itself; return exit status, stdout and stderr."""
    done = subprocess.run(
        [OFFRAMP, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "COLUMNS": "120", "TERM": "dumb"},
    )
    return done.returncode, done.stdout, done.stderr
