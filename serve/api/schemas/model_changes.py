"""The JSON of changes of models and aliases."""

from typing import Annotated

from pydantic import Field, StringConstraints

from serve.api.model_changes import Changed
from serve.api.schemas.base import RequestModel, SparseModel
from serve.api.schemas.policy import ReplicaAck, Why
from serve.policy.model_set import Alias, ModelSet, SetChange

_Name = Annotated[str, StringConstraints(min_length=1, max_length=255)]


class ModelLoad(RequestModel):
    """Which bundle a model is to have."""

    bundle: _Name | None = Field(
        default=None,
        description="Name of a bundle of the model repository, or of one that the server was "
        "started with. If absent, the bundle that the model has, read anew, or else the one of "
        "the model's name.",
    )
    reason: Why | None = Field(default=None, description="For the history.")


class ModelUnload(RequestModel):
    """Why a model is to be served no more."""

    reason: Why | None = Field(default=None, description="For the history.")


class AliasMove(RequestModel):
    """Which model an alias is to name."""

    model: _Name
    reason: Why | None = Field(default=None, description="For the history.")


class AliasRemoval(RequestModel):
    """Why a name is to stand for no model."""

    reason: Why | None = Field(default=None, description="For the history.")


class ModelsChange(SparseModel):
    """The models after a change, and the replicas that serve them."""

    version: int = Field(description="Of the set of models and aliases; each change adds 1.")
    models: dict[str, str] = Field(description="The bundle of each model.")
    aliases: dict[str, str] = Field(description="The model that each alias names.")
    replicas: list[ReplicaAck]
    refused: list[ReplicaAck] = Field(
        description="Replicas that cannot serve the set, and serve the one before; they try again."
    )
    unconfirmed: int = Field(description="Replicas that have not confirmed in time, or refused.")
    missing: list[str]

    @classmethod
    def of(cls, changed: Changed) -> "ModelsChange":
        """Return what is shown of a change."""
        made, (acks, unconfirmed, missing) = changed
        shown = [
            ReplicaAck(replica=ack.replica, version=ack.version, problem=ack.problem or None)
            for ack in acks
        ]
        refused = [ack for ack in shown if ack.version < made.version]
        return cls(
            version=made.version,
            models={name: bundle.name for name, bundle in made.models.items()},
            aliases={name: alias.model for name, alias in made.aliases.items()},
            replicas=[ack for ack in shown if ack.version >= made.version],
            refused=refused,
            unconfirmed=unconfirmed + len(refused),
            missing=list(missing),
        )


class Aliases(SparseModel):
    """Aliases, and what was changed of models and aliases."""

    version: int
    aliases: dict[str, Alias]
    history: list[SetChange] = Field(description="The newest changes, newest first.")

    @classmethod
    def of(cls, found: ModelSet) -> "Aliases":
        """Return what is shown of a set."""
        newest_first = list(reversed(found.history))
        return cls(version=found.version, aliases=found.aliases, history=newest_first)
