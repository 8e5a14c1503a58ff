"""A real Prometheus that scrapes one server every second, with our rules."""

import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

from tests.monitoring.promql import ALERTS
from tests.support.patience import until

Sample = dict[str, Any]


class PrometheusProcess:
    """Prometheus, until the block is left."""

    def __init__(self, folder: Path, scraped_port: int) -> None:
        """Write the configuration.

        Args:
            folder: for its files; empty.
            scraped_port: of the server on this machine.
        """
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{probe.getsockname()[1]}"
        target = {"static_configs": [{"targets": [f"127.0.0.1:{scraped_port}"]}]}
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [{"job_name": "offramp", **target}],
        }
        self._folder, self._config = folder, folder / "prometheus.yml"
        self._config.write_text(yaml.safe_dump(config))

    def __enter__(self) -> Self:
        program = shutil.which("prometheus")
        assert program
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={self._config}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self._address}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._http = httpx.Client(base_url=f"http://{self._address}/api/v1")
        try:
            until(self._ready)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def ask(self, expr: str) -> list[Sample]:
        """Return what a query gives now: samples with their labels (`metric`) and `value`."""
        samples: list[Sample] = self._get("/query", query=expr)["result"]
        return samples

    def rules(self) -> list[dict[str, Any]]:
        """Return the state of every rule."""
        return [rule for group in self._get("/rules")["groups"] for rule in group["rules"]]

    def _stop(self) -> None:
        self._http.close()
        self._process.terminate()
        self._process.wait()

    def _get(self, path: str, **params: str) -> dict[str, Any]:
        response = self._http.get(path, params=params)
        assert response.status_code == 200, response.text
        data: dict[str, Any] = response.json()["data"]
        return data

    def _ready(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            # Until its storage is open, it answers everything with 503.
            if self._http.get(f"http://{self._address}/-/ready").status_code != 200:
                return False
        except httpx.TransportError:
            return False
        return bool(self.ask("up"))
