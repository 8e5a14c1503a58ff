"""Which routes are on the metrics page, and whose time is counted."""

from prometheus_client.parser import text_string_to_metric_families

from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer
from tests.support.patience import until


def routes(server: LiveServer) -> dict[str, set[str]]:
    """Return the codes on the page by route."""
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    found: dict[str, set[str]] = {}
    for sample in (sample for family in families for sample in family.samples):
        if "code" in sample.labels and "route" in sample.labels:
            found.setdefault(sample.labels["route"], set()).add(sample.labels["code"])
    return found


def test_routes_that_are_used_are_on_the_page_with_their_failures(
    start_server: StartServer,
) -> None:
    server = start_server()
    assert "/v1/classify" not in routes(server)
    server.answer("w1")
    server.refusal("")
    assert routes(server) == {
        "/metrics": {"200", "500", "502", "503"},
        "/v1/classify": {"200", "422", "500", "502", "503"},
    }


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
