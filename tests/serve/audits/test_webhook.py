import json
import logging
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from queue import Queue

import pytest

from serve.audits.webhook import Webhook
from tests.serve.support.http_answers import answering

SECRET = "/services/secret"


class Receiver:
    """Answers with one status after the other, the last one again and again."""

    def __init__(self) -> None:
        self.bodies: Queue[tuple[str, bytes]] = Queue()
        self.statuses, self.url = [200], ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        left = self.statuses
        request.send_response(left.pop(0) if len(left) > 1 else left[0])
        request.send_header("Location", "/elsewhere")
        request.end_headers()
        self.bodies.put((request.path, body))

    def next(self) -> tuple[str, bytes]:
        return self.bodies.get(timeout=30)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    with answering(made.answer) as url:
        made.url = f"{url}{SECRET}"
        yield made


def test_alarm_is_posted_as_json(receiver: Receiver) -> None:
    Webhook().tell(receiver.url, {"profile": "fast"})
    path, body = receiver.next()
    assert path == SECRET
    assert json.loads(body) == {"profile": "fast"}


@pytest.mark.parametrize("status", [302, 500])
def test_what_fails_is_tried_once_more_and_no_redirect_is_followed(
    status: int, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [status, status, 200]
    webhook = Webhook()
    with caplog.at_level(logging.WARNING):
        for name in ("first", "second"):
            webhook.tell(receiver.url, {"name": name})
        seen = [receiver.next() for _ in range(3)]
    assert [json.loads(body)["name"] for _, body in seen] == ["first", "first", "second"]
    assert {path for path, _ in seen} == {SECRET}
    assert len(caplog.records) == 2
    assert all(f"it answered {status}" in record.getMessage() for record in caplog.records)
    assert SECRET not in caplog.text, "it may be a secret"


def test_receiver_that_never_ends_its_answer_holds_up_no_other_alarm(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    webhook = Webhook(whole_post_s=0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, caplog.at_level(logging.WARNING):
        webhook.tell(f"http://127.0.0.1:{silent.getsockname()[1]}{SECRET}", {})
        webhook.tell(receiver.url, {"name": "next"})
        assert receiver.next()[0] == SECRET
    assert "did not answer within" in caplog.text
    assert SECRET not in caplog.text


def test_proxy_is_asked_for_other_machines_alone(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nothing listens there
    Webhook().tell(receiver.url, {})
    assert receiver.next()[0] == SECRET
