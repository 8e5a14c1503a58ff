"""A real Prometheus scrapes a server of two replicas; every panel of the dashboard has data."""

import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.monitoring.prometheus_process import PrometheusProcess, running_prometheus
from tests.monitoring.promql import Query, queries, rules
from tests.serve.support.live_server import LiveServer
from tests.serve.support.server_process import ServerProcess
from tests.support.patience import until

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(
        shutil.which("prometheus") is None,
        reason="prometheus is not installed; Debian has it in the package prometheus",
    ),
]

# Only rules with a number for every exit have this label.
SELDOM = {("Thresholds", "layer")}
# Nothing is certified for the model here, so that nothing is promised.
OURS = [q for q in queries() if "ray_serve_" not in q.expr and "offramp_promise" not in q.expr]


@pytest.fixture(scope="module")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    with ServerProcess(bundle_folder, "--replicas", "2", "--port", "0") as process:
        yield process.client()
        process.send(signal.SIGTERM)  # killed, it leaves files behind
        assert process.exit_status() == 0, process.output


@pytest.fixture(scope="module")
def prometheus(
    server: LiveServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusProcess]:
    """Return Prometheus after traffic, refusals, a policy change and clients that left."""
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), server.port) as prometheus:
        until(lambda: send_traffic(server) and prometheus.ask("count(offramp_engine_up) == 2"))
        policy = {"default": {"rule": "entropy", "threshold": 0.7}}
        answer = server.put_policy(policy)
        assert answer.status_code == 200
        named = server.http.put("/v1/aliases/words", json={"model": "tiny"})
        assert named.status_code == 200, named.text
        until(lambda: send_traffic(server) and seen_by(prometheus))
        yield prometheus


def send_traffic(server: LiveServer) -> bool:
    """Make both replicas answer and refuse, and disconnect before some answers."""
    text = " ".join(["w1"] * 60)
    content = b'{"inputs": [' + b",".join([f'"{text}"'.encode()] * 256) + b"]}"
    head = (
        b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(content)
    )
    with ThreadPoolExecutor(4) as pool, ExitStack() as clients:
        for _ in range(4):
            clients.enter_context(server.half_sent(head + content))
        list(pool.map(server.answer, [["w1", "w2 w3 w4"]] * 16))
        server.refusal("")
    return True


def seen_by(prometheus: PrometheusProcess) -> bool:
    """Tell whether everything has been scraped often enough for rates of it."""
    return all(
        prometheus.ask(expr)
        for expr in (
            "count(sum by (replica) (rate(offramp_exits_total[30s])) > 0) == 2",
            "sum(rate(offramp_client_disconnects_total[30s])) > 0",
            "sum(rate(offramp_rejected_total[30s])) > 0",
            "min(changes(offramp_policy_version[1m])) > 0",
            "offramp:requests:rate5m > 0",
        )
    )


@pytest.mark.parametrize("query", OURS, ids=str)
def test_query_of_the_dashboard_returns_data(query: Query, prometheus: PrometheusProcess) -> None:
    samples = prometheus.ask(query.expr)
    assert samples
    assert any(sample["value"][1] != "NaN" for sample in samples)
    for label in query.legend:
        if (query.panel, label) in SELDOM:
            continue
        assert any(sample["metric"].get(label) for sample in samples), f"no label {label}"


def test_every_replica_has_series_of_its_own(prometheus: PrometheusProcess) -> None:
    engines = prometheus.ask("offramp_engine_up")
    assert len({sample["metric"]["replica"] for sample in engines}) == 2
    assert {sample["metric"]["job"] for sample in engines} == {"offramp"}


def test_prometheus_counts_what_the_server_counted(
    prometheus: PrometheusProcess, server: LiveServer
) -> None:
    def agree() -> bool:
        return [float(s["value"][1]) for s in prometheus.ask("sum(offramp_exits_total)")] == [
            server.metric("offramp_exits_total")
        ]

    until(agree)


def test_rules_are_evaluated_and_no_alert_is_raised_on_a_server_that_does_well(
    prometheus: PrometheusProcess,
) -> None:
    states = prometheus.rules()
    assert len(states) == len(rules())
    assert {state["health"] for state in states} == {"ok"}
    assert not prometheus.ask('ALERTS{alertstate="firing"}')
