"""Serve configs for `loadtest.chaos.host`."""

import json
from pathlib import Path

from loadtest.http.client import Json
from serve.cluster.deployment_options import APP_NAME

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
