"""Clients that are slow, greedy or many, against a listening server."""

import gc
import json
import resource
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

import serve.http.connection
from serve.http.connection import Connection
from serve.http.settings import Closed
from tests.serve.http.conftest import LIVE, Client, Served, StartLimited, refusal
from tests.support.patience import until

BODY = json.dumps({"inputs": "w1"}).encode()
POST = (
    b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)


def kept(served: Served) -> Client:
    """Return a connection on which a request was answered."""
    client = served.connect()
    client.send(LIVE)
    assert client.answer().startswith(b"HTTP/1.1 200")
    return client


@pytest.mark.parametrize("first", [True, False])
def test_head_that_never_ends_is_refused(start_limited: StartLimited, first: bool) -> None:
    served = start_limited(head_timeout_s=0.2)
    client = served.connect() if first else kept(served)
    client.send(LIVE[:-2])
    status, code, _ = refusal(client.rest())
    assert (status, code) == (408, "request_timeout")
    assert served.state.closed == {Closed.HEAD_TIMEOUT: 1}


def test_head_in_drops_gets_no_more_time(start_limited: StartLimited) -> None:
    served = start_limited(head_timeout_s=0.2)
    client = served.connect()
    client.send(LIVE[:-2])

    def closed_after_one_more() -> int:
        with suppress(OSError):
            client.send(b"x")
        return served.state.closed.total()

    until(closed_after_one_more)
    assert served.state.closed == {Closed.HEAD_TIMEOUT: 1}


def test_connection_that_says_nothing_is_closed_without_a_word(
    start_limited: StartLimited,
) -> None:
    served = start_limited(head_timeout_s=0.2)
    assert served.connect().rest() == b""
    assert served.state.closed == {Closed.HEAD_TIMEOUT: 1}


def test_idle_connection_is_kept_for_longer_than_a_head_may_take(
    start_limited: StartLimited,
) -> None:
    served = start_limited(head_timeout_s=0.1, idle_timeout_s=1.5)
    idle = kept(served)
    assert served.connect().rest() == b""
    assert served.connect().rest() == b""
    assert idle.open()
    assert idle.rest() == b""
    assert served.state.closed == {Closed.HEAD_TIMEOUT: 2, Closed.IDLE_TIMEOUT: 1}


def test_connection_that_idles_after_an_unwanted_body_is_closed(
    start_limited: StartLimited,
) -> None:
    served = start_limited(idle_timeout_s=0.5)
    client = served.connect()
    client.send((POST % len(BODY)).replace(b"classify", b"nothing"))
    assert client.answer().startswith(b"HTTP/1.1 404")
    client.send(BODY)  # after the answer
    assert client.rest() == b""
    assert served.state.closed == {Closed.IDLE_TIMEOUT: 1}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"body_timeout_s": 0.2}, Closed.BODY_TIMEOUT), ({"min_body_rate": 1000}, Closed.BODY_RATE)],
)
def test_body_that_comes_too_slowly_is_refused(
    start_limited: StartLimited,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, float],
    reason: Closed,
) -> None:
    if reason is Closed.BODY_RATE:
        monkeypatch.setattr(serve.http.connection, "BODY_GRACE_S", 0.2)
    served = start_limited(**limits)
    client = served.connect()
    client.send(POST % 100_000 + b'{"inputs": ["')
    status, code, message = refusal(client.rest())
    assert (status, code) == (408, "request_timeout")
    assert message == "the body of the request came too slowly"
    assert served.state.closed == {reason: 1}
    assert served.live.answer("w1")


def test_body_that_flows_may_take_longer_than_a_head(
    start_limited: StartLimited, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.http.connection, "BODY_GRACE_S", 0.1)
    served = start_limited(head_timeout_s=0.1, idle_timeout_s=0.1, min_body_rate=100)
    client, num_bytes = served.connect(), 1_000_000
    client.send(POST % num_bytes)
    for _ in range(3):  # each of these takes the head timeout
        client.send(b" " * 300_000)
        assert served.connect().rest() == b""
    client.send(BODY.rjust(100_000))
    assert client.answer().startswith(b"HTTP/1.1 200")
    assert Closed.BODY_RATE not in served.state.closed


def test_new_connection_takes_the_place_of_the_one_that_waits_longest(
    start_limited: StartLimited,
) -> None:
    served = start_limited(max_connections=4)
    waiting = [kept(served) for _ in range(4)]
    waiting[0].send(LIVE)
    waiting[0].answer()  # now the second waits longest
    served.connect().send(LIVE)
    assert waiting[1].rest() == b""
    assert all(waiting[n].open() for n in (0, 2, 3))
    assert served.state.num_open == 4
    assert served.state.closed == {Closed.LIMIT: 1}


def test_new_connection_is_refused_where_all_others_have_requests(
    start_limited: StartLimited,
) -> None:
    served = start_limited(max_connections=4)
    busy = [served.connect() for _ in range(4)]
    for client in busy:
        client.send((POST % len(BODY)).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert client.answer().startswith(b"HTTP/1.1 100")
    assert served.connect().rest() == b""
    for client in busy:
        client.send(BODY)
        assert client.answer().startswith(b"HTTP/1.1 200")
    assert served.state.closed == {Closed.REFUSED: 1}


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Let this process have both ends of 1,300 connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"this user may have {hard} file descriptors, too few")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("sent", [b"", LIVE[:-2]])
def test_thousand_lazy_connections_keep_nobody_out(
    start_limited: StartLimited, sent: bytes
) -> None:
    served = start_limited(max_connections=1024, head_timeout_s=300)
    for number in range(1300):
        served.connect().send(sent)
        if number % 26 == 25:
            response = httpx.post(
                f"{served.live.http.base_url}/v1/classify",
                json={"inputs": "w1"},
                verify=False,
                trust_env=False,
            )
            assert response.status_code == 200
    until(lambda: served.state.num_open <= 1024)
    assert set(served.state.closed) == {Closed.LIMIT}


def test_client_that_takes_no_answers_is_closed(start_limited: StartLimited) -> None:
    served, others = start_limited(idle_timeout_s=0.5), len(_left())
    greedy = served.connect(receive_buffer_bytes=4096)
    greedy.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
    until(lambda: served.state.closed[Closed.WRITE_TIMEOUT])
    until(lambda: not served.state.num_open)
    until(lambda: len(_left()) <= others)
    assert served.live.answer("w1")


def test_connection_that_takes_no_answers_makes_room(start_limited: StartLimited) -> None:
    served = start_limited(max_connections=4)
    for _ in range(4):
        greedy = served.connect(receive_buffer_bytes=4096)
        greedy.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
    until(lambda: served.answers.num_bytes > 4 * 50_000)
    other = served.connect()
    other.send(LIVE)
    assert other.answer().startswith(b"HTTP/1.1 200")
    assert served.state.closed == {Closed.LIMIT: 1}


def _left() -> list[object]:
    gc.collect()
    return [known for known in gc.get_objects() if type(known) is Connection]


def test_metrics_tell_of_connections(start_limited: StartLimited) -> None:
    served = start_limited(head_timeout_s=0.2)
    before = served.live.metric("offramp_connections")
    others = [kept(served) for _ in range(5)]
    assert served.live.metric("offramp_connections") == before + 5
    for other in others:
        other.socket.close()
    served.connect().rest()
    until(lambda: served.live.metric("offramp_connections") == before)
    closed = "offramp_connections_closed_total"
    assert served.live.metric(closed, reason="head_timeout") == served.live.metric(closed) == 1
