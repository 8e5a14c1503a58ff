"""The JSON of live policies."""

from typing import Literal

from pydantic import ConfigDict, Field

from serve.api.schemas.base import RequestModel, ResponseModel
from serve.policy.document import Policy


class PolicyReport(ResponseModel):
    """The live policy."""

    model: str
    version: int
    source: Literal["bundle", "config", "api"] = Field(
        description="Where the policy comes from: the bundle, the deployment's config, or a PUT."
    )
    policy: Policy


class ReplicaAck(ResponseModel):
    """A replica and the policy version that it applies."""

    replica: str
    version: int


class PolicyChange(PolicyReport):
    """The new policy, and the replicas that apply it already."""

    dropped_profiles: list[str] = Field(
        description="Profiles of the replaced policy that the new one lacks. Requests that name "
        "one now get the error `unknown_profile`."
    )
    replicas: list[ReplicaAck]
    unconfirmed: int = Field(
        description="Number of replicas that did not confirm in time. The policy is stored, and "
        "they follow within seconds, or when they answer again."
    )
    missing: list[str] = Field(
        default=[],
        description="Ids of replicas that have not confirmed, as far as known; those that are "
        "just starting are among them.",
    )


class PolicyUpdate(RequestModel):
    """A whole new policy, applied at once or not at all."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "version": 1,
                    "policy": {
                        "default": "balanced",
                        "profiles": {
                            "exact": {"rule": "never"},
                            "balanced": {"rule": "entropy", "threshold": 0.2},
                            "fast": {"rule": "patience", "patience": 1},
                        },
                        "limits": {"overrides": "any", "min_layer": 2},
                    },
                }
            ]
        }
    )

    policy: Policy
    version: int | None = Field(
        default=None,
        ge=1,
        description="The version this change was made from; 409 if another one is current. "
        "Without it, any version is replaced.",
    )
