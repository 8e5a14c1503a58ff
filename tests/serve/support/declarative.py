"""Ray Serve in the test's process, deployed to by documents, as `serve deploy` and KubeRay do."""

import os
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from serve.cluster.node import ALONE, ENVIRONMENT, local_node, session_folder
from tests.serve.support.live_server import LiveServer
from tests.support.patience import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports are not free of them
    from ray import serve as ray_serve
    from ray._raylet import Config
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema


@contextmanager
def serving(
    proxy_location: str = "HeadOnly", http_options: Mapping[str, Any] | None = None
) -> Iterator[LiveServer]:
    """Start Ray and Ray Serve on a free port of this machine, for as long as the block takes."""
    with reserved_port() as port, mock.patch.dict(os.environ, {**ENVIRONMENT, **ALONE}):
        Config.initialize("")  # Ray was imported with another environment
        with session_folder() as folder, local_node(folder, num_cpus=1):
            try:
                ray_serve.start(
                    proxy_location=proxy_location,
                    http_options={**(http_options or {}), "host": "127.0.0.1", "port": port},
                )
                live = LiveServer(port)
                with live.http:
                    yield live
            finally:
                ray_serve.shutdown()


@contextmanager
def reserved_port() -> Iterator[int]:
    """Keep a free port of this machine for Ray Serve's proxy, which binds with SO_REUSEPORT.

    A port that was only found free may soon belong to another process.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


class DeployFailed(Exception):
    """Ray Serve has refused an application, and says why."""


def submit(document: Mapping[str, Any]) -> None:
    """Deploy a document; applications that it does not name end."""
    _get_global_client().deploy_apps(ServeDeploySchema(**document))


def deploy_document(document: Mapping[str, Any], application: str) -> None:
    """Deploy a document and wait until its application runs.

    Raises:
        DeployFailed: it does not.
    """
    submit(document)
    until(lambda: _runs(application), timeout_s=180, every_s=0.1)


def details_of(application: str) -> dict[str, Any]:
    """Return what Ray Serve knows of an application."""
    found: dict[str, Any] = _get_global_client().get_serve_details()["applications"][application]
    return found


def _runs(name: str) -> bool:
    application = ray_serve.status().applications.get(name)
    if application and application.status == "DEPLOY_FAILED":
        raise DeployFailed(application.message)
    if application is None or application.status != "RUNNING":
        return False
    return all(d.status == "HEALTHY" for d in application.deployments.values())
