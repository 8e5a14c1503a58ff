"""A real Prometheus that scrapes one server every second, with our rules."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from loadtest.http.child_process import ChildProcess
from loadtest.http.server_process import free_port
from tests.monitoring.promql import ALERTS
from tests.support.patience import until

Sample = dict[str, Any]


class PrometheusProcess:
    """A running Prometheus."""

    def __init__(self, process: ChildProcess, http: httpx.Client) -> None:
        """Ask a process through a client of its API."""
        self._process, self._http = process, http

    def ready(self) -> bool:
        """Tell whether it answers queries and has scraped once."""
        assert self._process.status(0) is None, self._process.output
        try:
            # Until its storage is open, it answers everything with 503.
            if self._http.get("/-/ready").status_code != 200:
                return False
        except httpx.TransportError:
            return False
        return bool(self.ask("up"))

    def ask(self, expr: str) -> list[Sample]:
        """Return what a query gives now: samples with their labels (`metric`) and `value`."""
        samples: list[Sample] = self._get("/query", query=expr)["result"]
        return samples

    def rules(self) -> list[dict[str, Any]]:
        """Return the state of every rule."""
        return [rule for group in self._get("/rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **params: str) -> dict[str, Any]:
        response = self._http.get(f"/api/v1{path}", params=params)
        assert response.status_code == 200, response.text
        data: dict[str, Any] = response.json()["data"]
        return data


@contextmanager
def running_prometheus(folder: Path, scraped_port: int) -> Iterator[PrometheusProcess]:
    """Run Prometheus until the block is left.

    Args:
        folder: for its files; empty.
        scraped_port: of the server on this machine.
    """
    program = shutil.which("prometheus")
    assert program
    address = f"127.0.0.1:{free_port()}"
    target = {"static_configs": [{"targets": [f"127.0.0.1:{scraped_port}"]}]}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "offramp", **target}],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    options = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    command = [program, *options, f"--web.listen-address={address}"]
    with ChildProcess(command) as process, httpx.Client(base_url=f"http://{address}") as http:
        prometheus = PrometheusProcess(process, http)
        until(prometheus.ready)
        yield prometheus
