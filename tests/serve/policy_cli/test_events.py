from http.server import BaseHTTPRequestHandler
from itertools import islice
from types import SimpleNamespace

import pytest

from loadtest.http.server_process import free_port
from serve.policy_cli import events as events_module
from serve.policy_cli import shown
from serve.policy_cli.cli import watch
from serve.policy_cli.events import events
from serve.policy_cli.remote import RemotePolicy
from serve.policy_cli.server import CallFailed, Server, read_tls
from tests.serve.policy_cli.conftest import Offramp, answering
from tests.serve.support.live_server import LiveServer


def server_at(url: object) -> Server:
    return Server(str(url), None, read_tls(None, None))


def test_watch_shows_each_change(here: Offramp, live: LiveServer) -> None:
    stream = watch(RemotePolicy(server_at(live.http.base_url), None))

    def lines_of(kind: str) -> list[str]:
        answer = next(each for each in stream if each.fields["event"] == kind)
        return [line.plain for line in shown.event(answer.fields)]

    assert lines_of("policy")[0].startswith("version 1  tiny  ")
    assert "  balanced: no promise  audits 0  differences 0" in lines_of("quality")
    here("patch", "default=fast", "--why", "peak")
    changed = lines_of("policy")
    assert changed[0].startswith("version 2  tiny  ")
    assert changed[1:] == ["  peak", '  default: {"rule": "never"} -> fast']


def test_watch_of_a_server_that_is_not_there_ends() -> None:
    with pytest.raises(CallFailed, match="Connection refused") as failed:
        next(events(server_at(f"http://127.0.0.1:{free_port()}"), "/", lambda _: None))
    assert failed.value.exit_status == 4


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
            event = (
                "event: policy\nid: %d\ndata: {}\n\n:\n\nevent: quality\ndata: {}\n\nevent: half"
            )
            request.wfile.write((event % len(asked)).encode())

    monkeypatch.setattr(events_module, "time", SimpleNamespace(sleep=waited.append))
    with answering(stream) as url:
        found = events(server_at(url), "/", lambda _: None)
        kinds = [answer.fields["event"] for answer in islice(found, 4)]
        assert kinds == ["policy", "quality"] * 2
        with pytest.raises(CallFailed, match="answers 401") as refused:
            next(found)
    assert refused.value.exit_status == 1, "a key that was revoked is not tried again"
    assert asked == [None, "1", "1", "3"]
    assert waited == [1, 2, 1]
