"""No request that is hidden inside another one runs, direct or behind a proxy."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serve.http.hidden_request import BODY, HIDDEN, HIDDEN_ID, POLICY, request
from tests.serve.http.proxies import PROXIES, behind
from tests.serve.http.raw_socket import exchange, exchange_until_closed, statuses
from tests.serve.http.smuggling_shapes import Shape, all_shapes
from tests.serve.support.live_server import LiveServer, serving_bundles

SHAPES = all_shapes()
AT_ONCE = 48
OPENLY = HIDDEN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


@pytest.fixture(scope="module")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    with serving_bundles(bundle_folder) as live:
        yield live


def version(server: LiveServer) -> int:
    number: int = server.http.get(POLICY).json()["version"]
    return number


def good(port: int, name: str) -> bytes:
    """Return what comes back for an ordinary request that bears this id."""
    headers = b"X-Request-Id: %b\r\nConnection: close\r\nContent-Length: %d\r\n"
    return exchange_until_closed(port, [request(headers % (name.encode(), len(BODY)), BODY)])


def send_all(port: int) -> list[str]:
    """Send every shape, each followed by a good request; return what went wrong."""

    def send(numbered: tuple[int, Shape]) -> list[str]:
        number, shape = numbered
        received = exchange(port, shape.pieces)
        wrong = [f"{shape.name}: the hidden one is answered"] * (HIDDEN_ID in received)
        # The server refuses with other codes: a proxy has seen a path that it does not publish.
        answers = [status for status in statuses(received) if status != 403]
        if len(answers) > shape.max_answers:
            wrong.append(f"{shape.name}: answers {answers}")
        own = good(port, f"good-{number}")
        if statuses(own) != [200] or f"x-request-id: good-{number}\r\n".encode() not in own:
            wrong.append(f"after {shape.name}: {own!r}")
        return wrong

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [line for lines in pool.map(send, enumerate(SHAPES)) for line in lines]


def test_names_are_different_and_every_shape_but_the_legal_ones_hides_a_request() -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES) >= 60
    plain = [s.name for s in SHAPES if HIDDEN not in b"".join(s.pieces)]
    assert all(name.startswith(("pipelined: two legal", "expect: body withheld")) for name in plain)


def test_hidden_request_runs_when_it_is_sent_openly(server: LiveServer) -> None:
    before = version(server)
    assert HIDDEN_ID in exchange_until_closed(server.port, [OPENLY])
    assert version(server) == before + 1


def test_no_hidden_request_runs(server: LiveServer) -> None:
    before = version(server)
    wrong = send_all(server.port)
    assert (version(server) - before, wrong) == (0, [])


@pytest.mark.parametrize("proxy", PROXIES)
def test_no_hidden_request_runs_behind_a_proxy_that_publishes_one_path(
    server: LiveServer, proxy: str, tmp_path: Path
) -> None:
    before = version(server)
    with behind(proxy, server.port, tmp_path) as port:
        assert statuses(exchange_until_closed(port, [OPENLY])) == [403]
        wrong = send_all(port)
        last = [good(port, f"last-{number}") for number in range(16)]
    assert (version(server) - before, wrong) == (0, [])
    for number, own in enumerate(last):
        assert f"x-request-id: last-{number}\r\n".encode() in own


def test_curl_that_offers_http2_gets_its_own_answer(server: LiveServer) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = ["curl", "--http2", "-sS", "--noproxy", "*", "-d", BODY.decode()]
    command += ["-H", "Content-Type: application/json"]
    url = f"http://127.0.0.1:{server.port}/v1/classify"
    done = subprocess.run([*command, url], capture_output=True, check=True, timeout=30)
    assert json.loads(done.stdout)["results"] == server.post(BODY).json()["results"]


def test_java_that_offers_http2_gets_its_own_answers(server: LiveServer) -> None:
    if shutil.which("java") is None:
        pytest.skip("java (17 or later) is not installed")
    url = f"http://127.0.0.1:{server.port}/v1/classify"
    command = ["java", str(Path(__file__).with_name("HttpClientPost.java")), url, BODY.decode()]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120, text=True)
    answers = [line.partition(" ") for line in done.stdout.splitlines()]
    assert [status for status, _, _ in answers] == ["200", "200"]
    own = server.post(BODY).json()["results"]
    assert [json.loads(body)["results"] for _, _, body in answers] == [own, own]
