"""Changes of the models and aliases in all replicas: all of them follow, or nothing changes."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from serve.api.replicas import Prepared, Refreshed, Replicas
from serve.api.request import Request
from serve.api.trail import trail
from serve.bundle.repository import Repository
from serve.classifier.model_switch import ModelSwitch
from serve.errors import InvalidRequest, LoadFailed, Overloaded, VersionConflict
from serve.logs import fields
from serve.policy.entry import ANONYMOUS
from serve.policy.model_set import ModelName, ModelSet, ServedBundle

_NAME: Final[TypeAdapter[str]] = TypeAdapter(ModelName)
_MOST_TRIES: Final = 100
# Changes that run or wait.
_MOST_CHANGES: Final = 4
_RETRY_AFTER_S: Final = 5


class Asker(NamedTuple):
    """Who asks for a change, and why."""

    request: Request
    why: str | None = None

    @property
    def by(self) -> str:
        """What the history calls the client."""
        return self.request.client.name or ANONYMOUS


class Changed(NamedTuple):
    """The set of models after a change, and the replicas that serve it."""

    models: ModelSet
    refreshed: Refreshed


class ModelChanges:
    """Makes the changes that clients ask this replica for. Belongs to the event loop."""

    def __init__(self, switch: ModelSwitch, replicas: Replicas, repository: Repository) -> None:
        """Take this replica's models, all replicas, and the bundles that may be loaded."""
        self.switch, self.repository = switch, repository
        self._replicas = replicas
        self._changing, self._num_changes = asyncio.Lock(), 0

    async def load(self, name: str, bundle: str | None, asker: Asker) -> Changed:
        """Load a bundle under a name, in the place of the one that is served under it, if any.

        Args:
            name: of the model.
            bundle: name of the bundle; None for the one that the model has, else that of its name.
            asker: who asks.

        Raises:
            LoadFailed: a replica cannot serve it; nothing has changed.
            OfframpError: there is no such bundle, or the name cannot be had.
        """
        newest = await self.switch.stored()
        newest.check_loadable(name)
        known = newest.models.get(name)
        if known is None and not self.repository.was_given(name):
            check_name(name, "model")
        if bundle is None and known:
            folder = Path(known.folder)
        else:
            folder = await asyncio.to_thread(self.repository.folder_of, bundle or name)
        with self._counted():
            async with self._changing:
                return await self._load(name, folder.absolute(), asker)

    async def _load(self, name: str, folder: Path, asker: Asker) -> Changed:
        here = self.switch
        try:
            prepared = await self._replicas.prepare_model(name, str(folder), here)
            sha256 = _agreed(name, prepared)
            wanted = ServedBundle(folder=str(folder), sha256=sha256)
            return await self._change(
                asker, lambda newest: newest.loaded(name, wanted, asker.by, asker.why)
            )
        except BaseException:
            await self._replicas.forget_model(name, here)
            raise

    async def unload(self, name: str, asker: Asker) -> Changed:
        """Serve a model no more; requests that have found it are answered.

        Raises:
            UnknownModel: there is none.
            InvalidRequest: an alias names it.
        """
        with self._counted():
            async with self._changing:
                return await self._change(
                    asker, lambda newest: newest.unloaded(name, asker.by, asker.why)
                )

    async def move_alias(self, alias: str, model: str | None, asker: Asker) -> Changed:
        """Let an alias name a model; None removes it.

        Raises:
            UnknownModel: there is no such model, or no such alias to remove.
            InvalidRequest: the name cannot be had.
        """
        if model is not None:
            check_name(alias, "alias")
        with self._counted():
            async with self._changing:
                return await self._change(
                    asker, lambda newest: newest.aliased(alias, model, asker.by, asker.why)
                )

    async def _change(self, asker: Asker, make: Callable[[ModelSet], ModelSet]) -> Changed:
        for _ in range(_MOST_TRIES):
            before = await self.switch.stored()
            wanted = make(before)
            if await self.switch.put(wanted):
                break
        else:
            raise VersionConflict("other changes of the models came first each time; try again")
        refreshed = await self._replicas.follow_models(self.switch)
        acks = refreshed.acks
        if acks and all(ack.version < wanted.version for ack in acks):
            await self._take_back(before, wanted)
            raise LoadFailed(f"all stays as it was: no replica can serve that: {acks[0].problem}")
        _note(asker.request, wanted)
        return Changed(wanted, refreshed)

    async def _take_back(self, before: ModelSet, wanted: ModelSet) -> None:
        """Store the set of before again, so that later changes do not build on what none serves."""
        if await self.switch.put(before.model_copy(update={"version": wanted.version + 1})):
            await self._replicas.follow_models(self.switch)

    def _counted(self) -> "_Counted":
        return _Counted(self)


class _Counted:
    """Counts a change among those that run or wait."""

    def __init__(self, changes: ModelChanges) -> None:
        self._changes = changes

    def __enter__(self) -> None:
        if self._changes._num_changes >= _MOST_CHANGES:
            raise Overloaded("as many changes of models wait as may; try again", _RETRY_AFTER_S)
        self._changes._num_changes += 1

    def __exit__(self, *_: object) -> None:
        self._changes._num_changes -= 1


def check_name(name: str, field: str) -> None:
    """Refuse a name that a model or alias cannot have.

    Raises:
        InvalidRequest: it is such a name.
    """
    try:
        _NAME.validate_python(name)
    except ValidationError:
        raise InvalidRequest(
            f"{field}: a name must be 1 to 128 letters, digits, '_', '-' or '.', and begin with a "
            "letter or digit"
        ) from None


def _agreed(name: str, prepared: list[Prepared]) -> str:
    """Return the sha256 that all replicas have prepared.

    Raises:
        LoadFailed: one cannot serve the bundle, or they have different bundles.
    """
    if problems := [each for each in prepared if each.problem]:
        where = f" in replica {problems[0].replica}" if len(prepared) > 1 else ""
        raise LoadFailed(
            f"{name} was not loaded{where}, and all stays as it was: {problems[0].problem}"
        )
    found = {each.sha256 for each in prepared}
    if len(found) != 1:
        raise LoadFailed(
            f"{name} was not loaded, and all stays as it was: the replicas have different bundles "
            "of this name; copy one of them to every node"
        )
    return found.pop()


def _note(request: Request, made: ModelSet) -> None:
    """Write the line of a change that was made."""
    request.changed = True
    change: dict[str, Any] = made.history[-1].model_dump(by_alias=True, exclude_none=True)
    of_change = {name: change[name] for name in change if name not in ("at", "by")}
    line = {**request.log_fields, **of_change}
    trail.info("models changed", extra=fields(version=made.version, **line))
