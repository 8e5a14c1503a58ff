"""What Ray Serve's controller knows of the replicas."""

from typing import Any, Final, cast

import ray
from ray.serve.schema import DeploymentDetails

# Names of Ray Serve's; its client gives no handle that outlives the controller's process.
_ACTOR: Final = ("SERVE_CONTROLLER_ACTOR", "serve")
_TIMEOUT_S: Final = 3.0


class Controller:
    """The controller, asked about one deployment. Calls block for some seconds at most."""

    def __init__(self, app_name: str, deployment: str) -> None:
        """Find the controller; that waits for the cluster's head."""
        self._actor: Any = ray.get_actor(*_ACTOR)
        self._deployment = app_name, deployment

    def details(self) -> DeploymentDetails:
        """Return the state of the deployment, and how many replicas it should have.

        Raises:
            RayError: the controller does not answer, or its last deployment was refused.
        """
        # Not `ray.serve.status`: it does not tell how many replicas there should be, and for it
        # the controller waits for the head.
        asked: Any = self._actor.get_deployment_details.remote(*self._deployment)
        return cast(DeploymentDetails, ray.get(asked, timeout=_TIMEOUT_S))

    def num_wanted(self) -> int:
        """Return how many replicas there should be: as configured, or as the autoscaler decided.

        Raises:
            RayError: as of `details`.
        """
        wanted: int = self.details().target_num_replicas
        return wanted

    def replica_ids(self) -> set[str]:
        """Return the ids of all replicas, starting ones included.

        Raises:
            RayError: as of `details`.
        """
        return {replica.replica_id for replica in self.details().replicas}
