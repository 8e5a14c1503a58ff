"""Ray Serve's own proxy, in front of the app, when the server stops."""

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve.ray_proxy import close_proxy
from tests.patience import until
from tests.serve.declarative import deploy_document, serving
from tests.serve.web.live_server import LiveServer

pytestmark = pytest.mark.ray


@pytest.fixture
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    deployment = {
        "name": "Classifiers",
        "graceful_shutdown_timeout_s": 2,
        "ray_actor_options": {"num_cpus": 0.5},
    }
    application = {
        "name": "closing",
        "route_prefix": "/",
        "import_path": "serve.app:build",
        "args": {"bundles": [str(bundle_folder)]},
        "deployments": [deployment],
    }
    with serving() as live:
        deploy_document({"applications": [application]}, "closing")
        until(lambda: live.http.get("/health/ready").status_code == 200)
        yield live


def test_door_is_closed_first_and_what_was_taken_in_is_answered(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    content = json.dumps({"inputs": "w1"}).encode()
    head = (
        "POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    caplog.set_level(logging.WARNING)
    with server.half_sent(head.encode() + content[:5]) as unfinished:
        server.answer("w1")
        close_proxy(drain_s=0.2)
        assert caplog.messages == ["stopped with requests unanswered"]
        until(lambda: _refuses(server.port))
        unfinished.sendall(content[5:])
        caplog.clear()
        close_proxy(drain_s=60.0)
        assert not caplog.messages
        assert unfinished.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"


def _refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
