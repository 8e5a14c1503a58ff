"""Whom the server takes a request to be from, direct and through HAProxy and nginx."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve.access.proxies import TrustedProxies
from serve.api.access import Forwarded
from serve.logs import ACCESS_LOG
from tests.serve.http.proxies import behind
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.support.patience import until

FORGED = "203.0.113.5"
Serve = Callable[[list[str]], AbstractContextManager[LiveServer]]


@pytest.fixture
def serve(bundle_folder: Path) -> Serve:
    """Return what starts servers that trust these proxies."""

    @contextmanager
    def serve(trusted: list[str]) -> Iterator[LiveServer]:
        with serving_bundles(bundle_folder, access_log=True, trusted_proxies=trusted) as server:
            yield server

    return serve


def client_seen(
    port: int, caplog: pytest.LogCaptureFixture, *forwarded: str, sender: str = "127.0.0.1"
) -> Any:
    """Send a request with lines of X-Forwarded-For; return the address in the access log."""
    headers = [("X-Forwarded-For", given) for given in forwarded]
    transport = httpx.HTTPTransport(local_address=sender)
    with caplog.at_level(logging.INFO, ACCESS_LOG), httpx.Client(transport=transport) as http:
        caplog.clear()
        url = f"http://127.0.0.1:{port}/v1/classify"
        response = http.post(url, json={"inputs": "w1"}, headers=headers, timeout=60)
        assert response.status_code == 200, response.text
        until(lambda: any(r.name == ACCESS_LOG for r in caplog.records))
    [line] = [vars(r)["fields"] for r in caplog.records if r.name == ACCESS_LOG]
    return line["client"]


def test_no_client_chooses_its_address_unless_it_is_a_trusted_proxy(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # of uvicorn, for other servers
    with serve([]) as server:
        assert client_seen(server.port, caplog, FORGED) == "127.0.0.1"
    with serve(["10.0.0.0/8"]) as server:
        assert client_seen(server.port, caplog, FORGED) == "127.0.0.1"
    with serve(["127.0.0.0/8", "::1"]) as server:
        assert client_seen(server.port, caplog, "192.0.2.1", FORGED) == FORGED
        assert client_seen(server.port, caplog, f"{FORGED}, nonsense") == "127.0.0.1"
        assert client_seen(server.port, caplog) == "127.0.0.1"


@pytest.mark.parametrize("proxy", ["haproxy, forwarding", "nginx, forwarding"])
def test_client_behind_a_proxy_is_who_has_connected_to_the_proxy(
    serve: Serve, proxy: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(["127.0.0.1"]) as server, behind(proxy, server.port, tmp_path) as port:
        assert client_seen(port, caplog) == "127.0.0.1"
        assert client_seen(port, caplog, FORGED, sender="127.0.0.2") == "127.0.0.2"


@pytest.mark.parametrize(
    ("client", "proto", "seen"),
    [
        (("10.0.0.1", 5), "https", (("203.0.113.5", 0), "https")),
        (("10.0.0.1", 5), "HTTPS", (("203.0.113.5", 0), "https")),
        (("10.0.0.1", 5), "javascript", (("203.0.113.5", 0), "http")),
        (("192.0.2.1", 5), "https", (("192.0.2.1", 5), "http")),
        (None, "https", (None, "http")),  # a socket of Unix
    ],
)
def test_app_sees_address_and_scheme_that_a_trusted_proxy_names(
    client: tuple[str, int] | None, proto: str, seen: Any
) -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)

    given = [(b"x-forwarded-for", FORGED.encode()), (b"x-forwarded-proto", proto.encode())]
    scope = {"type": "http", "client": client, "scheme": "http", "headers": given}
    forwarded = Forwarded(app, TrustedProxies(["10.0.0.0/8"]))
    asyncio.run(forwarded(scope, None, None))  # type: ignore[arg-type]
    assert (scopes[0]["client"], scopes[0]["scheme"]) == seen
