"""Which bundles a server serves, and by which aliases: one versioned document.

It is kept where policies are. A change is made from the newest version, as one of a policy is.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, NonNegativeInt, StringConstraints

from serve.errors import InvalidRequest, UnknownModel
from serve.policy.entry import ANONYMOUS, now
from serve.validation import Frozen

SetAction = Literal["start", "load", "unload", "alias"]
# A name of a model or alias that comes while the server runs. It stands in paths and file names.
ModelName = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")
]

# The alias of requests that name no model.
DEFAULT_ALIAS: Final = "default"
MAX_MODELS: Final = 64
MAX_ALIASES: Final = 64
KEPT_CHANGES: Final = 100


class _Named(Frozen):
    model_config = ConfigDict(populate_by_name=True)


class ServedBundle(_Named):
    """The bundle of a model.

    Attributes:
        folder: an absolute path, which may be a link; its last part is the bundle's name.
        sha256: of its manifest.
        target: where the link led when the bundle was read; empty if `folder` is none.
    """

    folder: str
    sha256: str
    target: str = Field(default="", exclude_if=lambda value: not value)

    @classmethod
    def of(cls, folder: Path, sha256: str) -> "ServedBundle":
        """Return the bundle that a path leads to now."""
        target = str(folder.resolve())
        return cls(
            folder=str(folder), sha256=sha256, target="" if target == str(folder) else target
        )

    @property
    def name(self) -> str:
        """The bundle's name."""
        return self.folder.rpartition("/")[2]

    @property
    def place(self) -> str:
        """Where the bundle lies, wherever the link may lead by now."""
        return self.target or self.folder


class Alias(_Named):
    """Another name for a model: which one, since when, who has put it there, and why."""

    model: str
    since: str = ""
    by: str = ""
    why: str | None = None


class SetChange(_Named):
    """What was changed, by whom, when and why.

    Attributes:
        at: time of the change, in UTC.
        by: name of the key that has asked for it, `anonymous`, or `config`.
        action: what was done; `start` stands for what the deployment's arguments say.
        alias: the alias that was moved, made or removed.
        model: the model that was loaded or unloaded, or that the alias names now; None for none.
        before: what the alias named before, or the bundle that the model had.
        bundle: the bundle that was loaded or unloaded.
        sha256: hash of the bundle that the name stands for now; None for none.
        before_sha256: hash of the one that it stood for.
        why: the reason that was given.
    """

    at: str
    by: str = ANONYMOUS
    action: SetAction
    alias: str | None = None
    model: str | None = None
    before: str | None = Field(default=None, alias="from")
    bundle: str | None = None
    sha256: str | None = None
    before_sha256: str | None = Field(default=None, alias="from_sha256")
    why: str | None = None


class ModelSet(_Named):
    """The models of a server by name, and the aliases of some of them.

    Attributes:
        version: counts up from 1.
        baseline: hash of what the deployment's arguments say, see `baseline_of`.
        history: the newest changes, oldest first.
    """

    version: NonNegativeInt = 0
    baseline: str = ""
    models: dict[str, ServedBundle] = Field(default={})
    aliases: dict[str, Alias] = Field(default={})
    history: tuple[SetChange, ...] = ()

    @property
    def pins(self) -> dict[str, str]:
        """The sha256 of each model's bundle."""
        return {name: bundle.sha256 for name, bundle in self.models.items()}

    def started(
        self, models: Mapping[str, ServedBundle], aliases: Mapping[str, str], baseline: str
    ) -> "ModelSet":
        """Return what the deployment's arguments make of this set.

        Aliases stay that the arguments do not speak of, if their models do.

        Raises:
            InvalidRequest: an alias names no model, or has a model's name.
        """
        for alias, model in aliases.items():
            if model not in models or alias in models:
                raise InvalidRequest(
                    f"aliases.{alias}: {model!r} must be a model and {alias!r} none; served are "
                    f"{_listed(models)}"
                )
        at = now()
        kept = {
            name: each
            for name, each in self.aliases.items()
            if each.model in models and name not in models
        }
        said = {name: Alias(model=model, since=at, by="config") for name, model in aliases.items()}
        found = self._changed(dict(models), kept | said, at=at, by="config", action="start")
        return found.model_copy(update={"baseline": baseline})

    def loaded(
        self, name: str, bundle: ServedBundle, by: str = ANONYMOUS, why: str | None = None
    ) -> "ModelSet":
        """Return this set with a model more, or with another bundle for one.

        Raises:
            InvalidRequest: an alias has the name, or there are as many models as may be.
        """
        self.check_loadable(name)
        before = self.models.get(name)
        said: dict[str, Any] = {
            "model": name,
            "bundle": bundle.name,
            "before": before and before.name,
            "sha256": bundle.sha256,
            "before_sha256": before and before.sha256,
        }
        return self._changed({**self.models, name: bundle}, action="load", by=by, why=why, **said)

    def check_loadable(self, name: str) -> None:
        """Raise what `loaded` would raise."""
        if name in self.aliases:
            raise InvalidRequest(
                f"model: {name} is an alias of {self.aliases[name].model}; remove the alias first, "
                "or load the bundle under another name"
            )
        if name not in self.models and len(self.models) >= MAX_MODELS:
            raise InvalidRequest(
                f"model: {MAX_MODELS} are served, the most that may be; unload one"
            )

    def unloaded(self, name: str, by: str = ANONYMOUS, why: str | None = None) -> "ModelSet":
        """Return this set without a model.

        Raises:
            UnknownModel: there is none of this name.
            InvalidRequest: aliases name it.
        """
        if name in self.aliases:
            raise InvalidRequest(f"model: {name} is an alias; unload {self.aliases[name].model}")
        if name not in self.models:
            raise UnknownModel(f"no model {name[:128]!r}; served are {_listed(self.models)}")
        if named := [alias for alias, each in self.aliases.items() if each.model == name]:
            raise InvalidRequest(
                f"model: {name} has the aliases {_listed(named)}; move or remove them first"
            )
        models = {each: bundle for each, bundle in self.models.items() if each != name}
        gone = self.models[name]
        said: dict[str, Any] = {
            "model": name, "bundle": gone.name, "before_sha256": gone.sha256
        }  # fmt: skip
        return self._changed(models, action="unload", by=by, why=why, **said)

    def aliased(
        self, alias: str, model: str | None, by: str = ANONYMOUS, why: str | None = None
    ) -> "ModelSet":
        """Return this set with an alias for a model; None removes the alias.

        Raises:
            UnknownModel: there is no such model, or no alias to remove.
            InvalidRequest: a model has the alias's name, or there are as many as may be.
        """
        before = self.aliases.get(alias)
        if model is None and before is None:
            raise UnknownModel(f"no alias {alias[:128]!r}; there are {_listed(self.aliases)}")
        if model is not None and model not in self.models:
            raise UnknownModel(
                f"no model {model[:128]!r} that {alias} could name; served are "
                f"{_listed(self.models)}"
            )
        if alias in self.models:
            raise InvalidRequest(f"alias: {alias} is the name of a model; choose another one")
        if before is None and len(self.aliases) >= MAX_ALIASES:
            raise InvalidRequest(
                f"alias: there are {MAX_ALIASES}, the most that may be; remove one"
            )
        aliases = {name: each for name, each in self.aliases.items() if name != alias}
        if model is not None:
            aliases[alias] = Alias(model=model, since=now(), by=by, why=why)
        said: dict[str, Any] = {
            "alias": alias,
            "model": model,
            "before": before and before.model,
            "sha256": self.models[model].sha256 if model else None,
            "before_sha256": self.models[before.model].sha256 if before else None,
        }
        return self._changed(self.models, aliases, action="alias", by=by, why=why, **said)

    def _changed(
        self, models: dict[str, ServedBundle], aliases: dict[str, Alias] | None = None, **said: Any
    ) -> "ModelSet":
        change = SetChange(**{"at": now(), **said})
        aliases = self.aliases if aliases is None else aliases
        return ModelSet(
            version=self.version + 1,
            baseline=self.baseline,
            models=models,
            aliases={**aliases, **self._unnamed(models, aliases, change)},
            history=(*self.history, change)[-KEPT_CHANGES:],
        )

    def _unnamed(
        self, models: Mapping[str, ServedBundle], aliases: Mapping[str, Alias], change: SetChange
    ) -> dict[str, Alias]:
        """Return the alias that requests without a model need, which went to the only one.

        Without it they would fail as soon as a second model is there.
        """
        kept = [name for name in self.models if name in models]
        known = DEFAULT_ALIAS in aliases or DEFAULT_ALIAS in models
        if len(self.models) != 1 or len(models) < 2 or not kept or known:
            return {}
        why = "requests that name no model stay with it"
        return {DEFAULT_ALIAS: Alias(model=kept[0], since=change.at, by=change.by, why=why)}


def baseline_of(pins: Mapping[str, str], user_config: object = None) -> str:
    """Return what stands for a deployment's arguments: its bundles, and its `user_config`.

    Only sets of the same bundles are followed: others are of a deployment that comes or goes. With
    another `user_config` the set starts anew from that.
    """
    parts = (sorted(pins.items()), user_config)
    return ":".join(hashlib.sha256(json.dumps(part).encode()).hexdigest()[:32] for part in parts)


def same_deployment(one: str, other: str) -> bool:
    """Tell whether two baselines are of the same bundles, whatever their `user_config` is."""
    return one.partition(":")[0] == other.partition(":")[0]


def _listed(names: object) -> str:
    return ", ".join(sorted(names)) or "none"  # type: ignore[call-overload]
