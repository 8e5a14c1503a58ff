"""Offramp on a Ray cluster of its own, deployed from a Serve config file.

`python -m loadtest.scenarios.host CONFIG --port N` deploys the file at the start and again at every
SIGHUP, as a PUT to Ray's REST API does. SIGTERM ends everything.
"""

import argparse
import json
import logging
import signal
import threading
from pathlib import Path

from loadtest.http.client import Json
from serve.cluster.deployment_options import APP_NAME
from serve.cluster.node import local_node, session_folder

NUM_REPLICAS = 2
_DRAIN_S = 20.0


def write_config(path: Path, bundle: Path, policies: Json, max_inputs: int = 256) -> None:
    """Write a config.

    Args:
        path: of the file.
        bundle: to serve.
        policies: the deployment's `user_config`, by model; Ray Serve applies a change in place.
        max_inputs: an argument of the app; a change replaces every replica, as new code does.
    """
    deployment = {
        "name": "Classifiers",
        "num_replicas": NUM_REPLICAS,
        "user_config": {"policies": policies},
        "ray_actor_options": {"num_cpus": 0.5},
        "graceful_shutdown_timeout_s": _DRAIN_S,
        "graceful_shutdown_wait_loop_s": 0.1,
        "health_check_period_s": 2,
    }
    application = {
        "name": APP_NAME,
        "route_prefix": "/",
        "import_path": "serve.app:build",
        "args": {
            "bundles": [str(bundle.resolve())],
            "num_threads": 1,
            "max_inputs": max_inputs,
            "no_auth": True,  # it listens on this machine only
        },
        "deployments": [deployment],
    }
    path.write_text(json.dumps({"applications": [application]}))


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.scenarios.host")
    parser.add_argument("config", type=Path)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    with session_folder() as folder, local_node(folder, num_cpus=2):
        _run(options.config, options.port)


def _run(config: Path, port: int) -> None:
    """Deploy the file again and again."""
    from ray import serve as ray_serve

    wake, ending = threading.Event(), threading.Event()

    def on_signal(number: int, frame: object) -> None:
        if number == signal.SIGTERM:
            ending.set()
        wake.set()

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    # Installed after Ray has started, because Ray's core would handle SIGTERM first.
    signal.signal(signal.SIGHUP, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    ray_serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    try:
        while not ending.is_set():
            _deploy(config)
            wake.wait()
            wake.clear()
    finally:
        ray_serve.delete(APP_NAME)


def _deploy(config: Path) -> None:
    # Private, but the REST API calls it too; the CLI needs the dashboard.
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    schema = ServeDeploySchema.model_validate(json.loads(config.read_text()))
    client = _get_global_client()
    assert client is not None  # it raises if Serve does not run
    client.deploy_apps(schema)


if __name__ == "__main__":
    main()
