"""The OpenAPI document takes a quarter of a second to make, which the event loop cannot spare."""

import threading

import pytest

import serve.api.openapi
from tests.serve.api.conftest import StartServer


def test_it_is_made_once_and_on_a_thread_of_its_own(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made_on = serve.api.openapi.make_document, list[str]()

    def made(*routes: object) -> object:
        made_on.append(threading.current_thread().name)
        return make(*routes)

    monkeypatch.setattr(serve.api.openapi, "make_document", made)
    server = start_server()
    assert server.http.delete("/openapi.json").status_code == 405
    assert not made_on
    answers = [server.http.get("/openapi.json") for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert len(made_on) == 1
    assert made_on[0].startswith("asyncio_")
