"""A real Prometheus scrapes a server of two replicas; every panel of the dashboard has data."""

import random
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from loadtest.http.server_process import ChildProcess, free_port
from tests.monitoring.promql import ALERTS, Query, queries, rules
from tests.serve.support.live_server import LiveServer, request_of
from tests.serve.support.server_process import ServerProcess
from tests.support.patience import until

PROGRAM = shutil.which("prometheus")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(
        PROGRAM is None,
        reason="prometheus is not installed; Debian has it in the package prometheus",
    ),
]

# Only rules with a number for every exit have this label.
SELDOM = {("Thresholds", "layer")}
# Nothing is certified for the model here, so that nothing is promised.
OURS = [q for q in queries() if "ray_serve_" not in q.expr and "offramp_promise" not in q.expr]


class Prometheus:
    """A running Prometheus with our rules, asked through its API."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def ready(self) -> bool:
        """Tell whether it answers queries and has scraped once."""
        try:
            # Until its storage is open, it answers everything with 503.
            return self._http.get("/-/ready").status_code == 200 and bool(self.ask("up"))
        except httpx.TransportError:
            return False

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """Return what a query gives now: samples with their labels (`metric`) and `value`."""
        samples: list[dict[str, Any]] = self._get("/query", query=expr)["result"]
        return samples

    def rules(self) -> list[dict[str, Any]]:
        """Return the state of every rule."""
        return [rule for group in self._get("/rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **params: str) -> dict[str, Any]:
        response = self._http.get(f"/api/v1{path}", params=params)
        assert response.status_code == 200, response.text
        data: dict[str, Any] = response.json()["data"]
        return data


@pytest.fixture(scope="module")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    flags = ("--replicas", "2", "--answer-cache", "1", "--port", "0")
    with ServerProcess(bundle_folder, *flags) as process:
        yield process.client()
        process.send(signal.SIGTERM)  # killed, it leaves files behind
        assert process.exit_status() == 0, process.output


@pytest.fixture(scope="module")
def prometheus(
    server: LiveServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Return Prometheus after traffic, refusals, a policy change and clients that left."""
    folder = tmp_path_factory.mktemp("prometheus")
    target = {"static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "offramp", **target}],
    }
    file, address = folder / "prometheus.yml", f"127.0.0.1:{free_port()}"
    file.write_text(yaml.safe_dump(config))
    options = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    command = [str(PROGRAM), *options, f"--web.listen-address={address}"]
    with ChildProcess(command), httpx.Client(base_url=f"http://{address}") as http:
        found = Prometheus(http)
        until(found.ready)
        until(lambda: send_traffic(server) and found.ask("count(offramp_engine_up) == 2"))
        policy = {"default": {"rule": "entropy", "threshold": 0.7}}
        server.put_policy(policy).raise_for_status()
        server.http.put("/v1/aliases/words", json={"model": "tiny"}).raise_for_status()
        until(lambda: send_traffic(server) and seen_by(found))
        yield found


def send_traffic(server: LiveServer) -> bool:
    """Make both replicas answer and refuse, and disconnect before some answers."""
    text = " ".join(random.choices(["w1", "w2", "w3"], k=60))  # else the cache answers at once
    request = request_of(b'{"inputs": [' + b",".join([f'"{text}"'.encode()] * 256) + b"]}")
    with ThreadPoolExecutor(4) as pool, ExitStack() as clients:
        for _ in range(4):
            clients.enter_context(server.half_sent(request))
        list(pool.map(server.answer, [["w1", "w2 w3 w4"]] * 16))
        server.refusal("")
    return True


def seen_by(prometheus: Prometheus) -> bool:
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
def test_query_of_the_dashboard_returns_data(query: Query, prometheus: Prometheus) -> None:
    samples = prometheus.ask(query.expr)
    assert any(sample["value"][1] != "NaN" for sample in samples)
    for label in query.legend:
        if (query.panel, label) not in SELDOM:
            assert any(sample["metric"].get(label) for sample in samples), f"no label {label}"


def test_prometheus_counts_what_every_replica_counted(
    prometheus: Prometheus, server: LiveServer
) -> None:
    def agree() -> bool:
        [sample] = prometheus.ask("sum(offramp_exits_total)")
        return float(sample["value"][1]) == server.metric("offramp_exits_total")

    until(agree)
    engines = prometheus.ask("offramp_engine_up")
    assert len({sample["metric"]["replica"] for sample in engines}) == 2
    assert {sample["metric"]["job"] for sample in engines} == {"offramp"}


def test_rules_are_evaluated_and_no_alert_is_raised_on_a_server_that_does_well(
    prometheus: Prometheus,
) -> None:
    states = prometheus.rules()
    assert len(states) == len(rules())
    assert {state["health"] for state in states} == {"ok"}
    assert not prometheus.ask('ALERTS{alertstate="firing"}')
