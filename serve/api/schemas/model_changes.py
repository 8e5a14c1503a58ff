"""The JSON of changes of models and aliases."""

from typing import Annotated

from pydantic import Field, StringConstraints

from serve.api.model_changes import ModelsChanged
from serve.api.schemas.base import SparseModel
from serve.api.schemas.policy import Followers, Why
from serve.policy.model_set import Alias, ModelSet, SetChange
from serve.validation import RequestModel

_Name = Annotated[str, StringConstraints(min_length=1, max_length=255)]


class ModelLoad(RequestModel):
    """The bundle that a model shall have."""

    bundle: _Name | None = Field(
        default=None,
        description="Name of a bundle of the model repository, or of one that the server was "
        "started with. If absent, the bundle that the model has, read anew, or else the one of "
        "the model's name.",
    )
    reason: Why | None = Field(default=None, description="For the history.")


class ModelsReason(RequestModel):
    """Why a model is to be served no more, or an alias is to be removed."""

    reason: Why | None = Field(default=None, description="For the history.")


class AliasMove(RequestModel):
    """The model that an alias shall name."""

    model: _Name
    reason: Why | None = Field(default=None, description="For the history.")


class ModelsChange(Followers):
    """The models after a change, and the replicas that serve them."""

    version: int = Field(
        description="Version of the set of models and aliases; each change adds 1."
    )
    models: dict[str, str] = Field(description="The bundle of each model.")
    aliases: dict[str, str] = Field(description="The model that each alias names.")

    @classmethod
    def of(cls, changed: ModelsChanged) -> "ModelsChange":
        """Return what is shown of a change."""
        made, refreshed = changed
        return cls(
            version=made.version,
            models={name: bundle.name for name, bundle in made.models.items()},
            aliases={name: alias.model for name, alias in made.aliases.items()},
            **cls.followers(refreshed, made.version),
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
