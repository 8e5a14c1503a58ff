"""Loads, unloads and aliases of models in all replicas: all of them follow, or nothing changes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from serve.api.replicas import Prepared, Refreshed, Replicas
from serve.api.request import Request
from serve.api.trail import trail
from serve.bundle.loader import Bundle
from serve.bundle.repository import Repository
from serve.classifier.classifier import Classifier
from serve.classifier.model_switch import ModelSwitch
from serve.errors import InvalidRequest, LoadFailed, Overloaded, Unavailable, VersionConflict
from serve.logs import fields
from serve.policy.model_set import ModelName, ModelSet, ServedBundle

_NAME: Final[TypeAdapter[str]] = TypeAdapter(ModelName)
_MOST_TRIES: Final = 100
# Changes that run or wait.
_MOST_CHANGES: Final = 4
_RETRY_AFTER_S: Final = 5
_MAX_LABELS_CHARS: Final = 120


class _Turns:
    """Admits one change at a time, and refuses those beyond the few that may wait."""

    def __init__(self) -> None:
        self._lock, self._waiting = asyncio.Lock(), Counter[bool]()

    @asynccontextmanager
    async def one(self, unload: bool = False) -> AsyncIterator[None]:
        """Wait for the own turn; no other changes take the room of unloads.

        Raises:
            Overloaded: too many wait already.
        """
        if self._waiting[unload] >= _MOST_CHANGES:
            raise Overloaded("too many changes of models wait already; try again", _RETRY_AFTER_S)
        self._waiting[unload] += 1
        try:
            async with self._lock:
                yield
        finally:
            self._waiting[unload] -= 1


class ModelChanges:
    """Makes the changes that clients ask this replica for. Belongs to the event loop."""

    def __init__(self, switch: ModelSwitch, replicas: Replicas, repository: Repository) -> None:
        """Take this replica's models, all replicas, and the bundles that may be loaded."""
        self.switch, self.repository = switch, repository
        self._replicas = replicas
        # An alias moves while a bundle is being loaded.
        self._loads, self._changes = _Turns(), _Turns()

    async def load(
        self,
        request: Request,
        name: str,
        bundle: str | None,
        why: str | None = None,
        force: bool = False,
    ) -> tuple[ModelSet, Refreshed]:
        """Load a bundle under a name, in the place of the one that is served under it, if any.

        Args:
            request: which asks for it.
            name: of the model.
            bundle: name of the bundle; None for the one that the model has, else that of its name.
            why: the reason, for the history.
            force: whether labels and task may be others than those of the model before.

        Returns:
            The set of models after the change, and the replicas that serve it.

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
        folder = folder.absolute()
        async with self._loads.one():
            try:
                prepared = await self._replicas.prepare_model(name, str(folder), self.switch)
                wanted = ServedBundle.of(folder, _agreed(name, prepared))
                if not force:
                    self._check_labels(name, self.switch.known(name, wanted.sha256))
                return await self._change(
                    request, lambda newest: newest.loaded(name, wanted, request.by, why)
                )
            except BaseException:
                await self._replicas.forget_model(name, self.switch)
                raise

    async def unload(
        self, request: Request, name: str, why: str | None = None
    ) -> tuple[ModelSet, Refreshed]:
        """Serve a model no more; requests that have found it are answered.

        Raises:
            UnknownModel: there is none.
            InvalidRequest: an alias names it.
        """
        return await self._change(
            request, lambda newest: newest.unloaded(name, request.by, why), unload=True
        )

    async def move_alias(
        self,
        request: Request,
        alias: str,
        model: str | None,
        why: str | None,
        force: bool = False,
    ) -> tuple[ModelSet, Refreshed]:
        """Let an alias name a model; None removes it.

        `force` allows other labels than those of the model that it names now.

        Raises:
            UnknownModel: there is no such model, or no such alias to remove.
            InvalidRequest: the name cannot be had.
        """
        if model is not None:
            check_name(alias, "alias")
            if not force and alias in self.switch.catalog.aliases:
                self._check_labels(alias, self.switch.catalog.found.get(model))
        return await self._change(
            request, lambda newest: newest.aliased(alias, model, request.by, why)
        )

    def _check_labels(self, name: str, new: Classifier | None) -> None:
        """Refuse to let a name stand for a model with other labels, or of another task, unasked.

        Raises:
            InvalidRequest: it would.
        """
        old = self.switch.catalog.found.get(name)
        if old is None or new is None:
            return
        before, after = old.bundle.manifest, new.bundle.manifest
        if (before.task, before.labels) != (after.task, after.labels):
            raise InvalidRequest(
                f"{name} is {_described(old.bundle)}, and would become {_described(new.bundle)}: "
                'clients that read labels would misread it; say "force": true (`--force`) if they '
                "do not, or use another name"
            )

    async def _change(
        self, request: Request, new: Callable[[ModelSet], ModelSet], unload: bool = False
    ) -> tuple[ModelSet, Refreshed]:
        """Store what is made of the newest set, and have every replica serve it."""
        async with self._changes.one(unload):
            for _ in range(_MOST_TRIES):
                before = await self.switch.stored()
                wanted = new(before)
                if await self.switch.put(wanted):
                    break
            else:
                raise VersionConflict("other changes of the models came first each time; try again")
            refreshed = await self._replicas.follow_models(self.switch)
            acks = refreshed.acks
            if acks and all(ack.version < wanted.version for ack in acks):
                # Later changes must not build on a set that no replica serves.
                undone = before.model_copy(update={"version": wanted.version + 1})
                if await self.switch.put(undone):
                    await self._replicas.follow_models(self.switch)
                raise LoadFailed(
                    f"nothing has changed: no replica can serve that: {acks[0].problem}"
                )
            _note(request, wanted)
            return wanted, refreshed


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


def _described(bundle: Bundle) -> str:
    labels = ", ".join(bundle.manifest.labels)
    shown = labels if len(labels) <= _MAX_LABELS_CHARS else f"{labels[:_MAX_LABELS_CHARS]}..."
    return f"{bundle.manifest.task} with the labels {shown} (bundle {bundle.version})"


def _agreed(name: str, prepared: list[Prepared]) -> str:
    """Return the sha256 that all replicas have prepared.

    Raises:
        LoadFailed: one cannot serve the bundle, or they have different bundles.
        Unavailable: one is stopping.
    """
    if problems := [each for each in prepared if each.problem]:
        where = f" in replica {problems[0].replica}" if len(prepared) > 1 else ""
        failed = Unavailable if problems[0].stops else LoadFailed
        raise failed(
            f"{name} was not loaded{where}, and nothing has changed: {problems[0].problem}"
        )
    found = {each.sha256 for each in prepared}
    if len(found) != 1:
        raise LoadFailed(
            f"{name} was not loaded, and nothing has changed: the replicas have different bundles "
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
