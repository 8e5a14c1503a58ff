"""Names and options of the Ray Serve deployment. Importing this module does not import Ray."""

from typing import Any, Final, NamedTuple

from serve.http.settings import DRAIN_S

# Of `offramp serve`; configs of a Ray cluster choose their own.
APP_NAME: Final = "offramp"
DEPLOYMENT_NAME: Final = "Classifiers"
# Of Ray Serve's own logs.
LOGGING: Final = {"enable_access_log": False, "log_level": "WARNING"}

DEFAULTS: Final[dict[str, Any]] = {
    # Above what the engine admits: the engine sheds load, and computes a Retry-After.
    "max_ongoing_requests": 8192,
    "user_config": {"policies": {}},
    # Ray Serve replaces a replica after three checks that it does not answer: a hung one 9 to 11 s
    # after it has stopped. With Ray's defaults it takes 100 s. A busy one is spared: it would have
    # to leave three checks in a row unanswered for 3 s each, and answer no client meanwhile.
    "health_check_period_s": 1.0,
    "health_check_timeout_s": 3.0,
}


class LocalReplicas(NamedTuple):
    """The replicas of `offramp serve`.

    Attributes:
        number: how many.
        gpu_share: how much of a GPU each takes; Ray shows each replica its own.
    """

    number: int
    gpu_share: float = 0.0


def local_options(replicas: LocalReplicas, num_cpus: float) -> dict[str, Any]:
    """Return what `offramp serve` adds to `DEFAULTS`, for replicas that share these cores."""
    return {
        "num_replicas": replicas.number,
        "ray_actor_options": {
            "num_cpus": min(1.0, num_cpus / replicas.number),
            "num_gpus": replicas.gpu_share,
        },
        "graceful_shutdown_timeout_s": DRAIN_S,
        "graceful_shutdown_wait_loop_s": 0.1,
        # A bundle that does not load once does not load the next time either.
        "max_constructor_retry_count": 1,
    }
