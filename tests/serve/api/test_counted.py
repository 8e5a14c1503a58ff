"""Which routes are on the metrics page, and whose time is counted."""

from prometheus_client.parser import text_string_to_metric_families

from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer, raw_request
from tests.support.patience import until


def routes(server: LiveServer) -> dict[str, set[str]]:
    """Return the codes on the page by route."""
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    found: dict[str, set[str]] = {}
    for sample in (sample for family in families for sample in family.samples):
        if "code" in sample.labels and "route" in sample.labels:
            found.setdefault(sample.labels["route"], set()).add(sample.labels["code"])
    return found


def test_requests_are_counted_by_route_and_code_and_used_routes_with_their_failures(
    start_server: StartServer,
) -> None:
    server, counted = start_server(), "offramp_requests_total"
    assert "/v1/classify" not in routes(server)
    server.answer("w1")
    server.refusal("")
    assert routes(server) == {
        "/metrics": {"200", "500", "502", "503"},
        "/v1/classify": {"200", "422", "500", "502", "503"},
    }
    server.post('{"inputs": "w1"}', "text/plain")
    server.http.get("/v1/models/tiny")
    server.http.get("/nowhere")
    assert server.metric(counted, route="/v1/classify", code="200", model="tiny") == 1
    assert server.metric(counted, route="/v1/classify", code="422", model="") == 1
    assert server.metric(counted, code="415") == 1
    assert server.metric(counted, route="/v1/models/{model}", code="200", model="tiny") == 1
    assert server.metric(counted, route="other", code="404") == 1
    assert server.metric("offramp_request_duration_seconds_count", model="tiny") == 2


def timed(server: LiveServer) -> float:
    return server.metric("offramp_request_duration_seconds_count", route="/v1/classify")


def test_time_in_which_a_body_arrives_and_refusals_are_not_the_server_s(
    start_server: StartServer,
) -> None:
    server = start_server()
    server.refusal("")
    with server.half_sent(raw_request("/v1/classify", size=16)):
        pass  # it leaves before its body has come
    until(lambda: server.metric("offramp_requests_total", route="/v1/classify", code="499") == 1)
    assert timed(server) == 0
    server.answer("w1")
    assert timed(server) == 1
