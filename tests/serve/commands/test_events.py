"""`offramp policy watch`."""

import json
from http.server import BaseHTTPRequestHandler
from itertools import islice
from threading import Thread

import pytest

from serve.commands import http_client
from serve.commands.http_client import CallFailed, Server
from tests.serve.commands.conftest import Offramp
from tests.serve.support.http_answers import answering
from tests.serve.support.live_server import LiveServer


def test_watch_shows_each_change(
    here: Offramp, live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = {"default": {"rule": "layer", "layer": 2}}
    real, seen = Server.events, []

    def until_changed(*args: object) -> object:
        for event in real(*args):  # type: ignore[arg-type]
            yield event
            if not seen:
                Thread(target=live.put_policy, args=(policy,)).start()
            seen.append(event["event"])
            if event["data"].get("version") == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(Server, "events", until_changed)
    ended = here("policy", "watch")
    assert ended.status == 130
    lines = ended.said.splitlines()
    assert lines[0].startswith("version 1  tiny  ")
    assert any(line.startswith("version 2  tiny  ") for line in lines)
    assert any(line.startswith("  default: ") for line in lines)
    assert set(seen) <= {"policy", "quality"}


def test_watch_goes_on_after_what_it_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    waited: list[float] = []

    def stream(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.headers["Last-Event-ID"])
        status = {2: 503, 4: 401}.get(len(asked), 200)
        request.send_response(status)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        if status == 200:
            one, more = f"event: policy\nid: {len(asked)}\n", "event: quality\n"
            data = f"data: {json.dumps({})}\n\n"
            request.wfile.write(f"{one}{data}:\n\n{more}{data}event: half".encode())

    monkeypatch.setattr(http_client.time, "sleep", waited.append)
    with answering(stream) as url:
        found = Server.at(url).events("/", lambda _: None)
        assert [event["event"] for event in islice(found, 4)] == ["policy", "quality"] * 2
        with pytest.raises(CallFailed) as refused:
            next(found)
    assert refused.value.exit_status == 1, "a key that was revoked is not tried again"
    assert asked == [None, "1", "1", "3"]
    assert waited == [1, 2, 1]
