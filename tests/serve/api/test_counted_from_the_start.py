"""What requests may count is on the metrics page before the first of them; who waits is timed."""

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from serve.dialects.registry import choose_dialects
from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer
from tests.support.patience import until

ENDPOINTS = [each for dialect in choose_dialects(["all"]) for each in dialect.endpoints]
# Not those for operators and probes.
ROUTES = [each.path for each in ENDPOINTS if each.scope == "classify"]
ANY = [b"", b"{", b"{}", b'{"inputs": "w1"}', b'{"inputs": "w1", "exit": {"rule": "never"}}']


def series(server: LiveServer) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    return {
        (sample.name, frozenset(sample.labels.items()))
        for family in families
        for sample in family.samples
        if sample.labels.get("route") in (None, *ROUTES)
    }


def test_no_request_adds_a_series(start_server: StartServer) -> None:
    server = start_server()
    before = series(server)
    assert before
    for path in (route.format(model="tiny", version="1") for route in ROUTES):
        for body in ANY:
            for content_type in ("application/json", "text/plain"):
                headers = {"Content-Type": content_type}
                server.http.post(path, content=body, headers=headers)
        server.http.post(path, json={}, headers={"Host": "a.example"})
    rules: list[dict[str, Any]] = [
        {"rule": "entropy", "threshold": 2},
        {"rule": "patience", "patience": 1},
        {"rule": "layer", "layer": 1},
        {"rule": "never", "max_layer": 2},
        {"rule": "voting", "votes": 2},
    ]
    for rule in rules:
        server.answer("w1", exit=rule)
    server.post(b'{"inputs": "w1", "timeout_ms": 1}')
    assert series(server) == before


def timed(server: LiveServer) -> float:
    return server.metric("offramp_request_duration_seconds_count", route="/v1/classify")


def test_time_in_which_a_body_arrives_and_refusals_are_not_the_server_s(
    start_server: StartServer,
) -> None:
    server = start_server()
    content = b'{"inputs": "w1"}'
    head = (
        b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(content)
    )
    server.refusal("")
    with server.half_sent(head):
        pass  # it leaves before its body has come
    until(lambda: server.metric("offramp_requests_total", route="/v1/classify", code="499") == 1)
    assert timed(server) == 0
    server.answer("w1")
    assert timed(server) == 1
