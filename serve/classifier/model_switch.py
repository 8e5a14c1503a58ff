"""Changes the models of one process while it answers: the set that is stored is what it serves."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from serve.bundle.loader import given_path, sha256_of_manifest
from serve.classifier.catalog import Catalog, check_baseline
from serve.classifier.classifier import Classifier
from serve.errors import LoadFailed, OfframpError, Unavailable
from serve.policy.document import Policy
from serve.policy.model_set import ModelSet, ServedBundle, same_deployment
from serve.policy.store import Store
from serve.policy.threads import PolicyThreads
from serve.runtime.process_memory import keep_objects


class Loader(Protocol):
    """Loads bundles in this process. Calls block."""

    def load(self, name: str, folder: str, sha256: str | None = None) -> Classifier:
        """Return a model under a name; `sha256` is that of its bundle, if that is known.

        Raises:
            OfframpError: it cannot be served.
        """
        ...

    def verify(self, folder: str) -> None:
        """Check every file of a bundle.

        Raises:
            LoadFailed: one is missing or damaged.
        """
        ...


# A model that was prepared and is not served by then is given up.
_PREPARED_S: Final = 300.0
# After a set that could not be served, until it is tried again.
_TRY_AGAIN_S: Final = 30.0


class _Prepared(NamedTuple):
    classifier: Classifier
    since_s: float


class ModelSwitch:
    """Prepares models beside those that are served, and puts them in their place.

    Belongs to the event loop. Requests end with the model that they began with.

    Attributes:
        catalog: what is served.
        current: the set that is served.
    """

    def __init__(
        self, catalog: Catalog, loader: Loader, store: Store, baseline: str, drain_s: float
    ) -> None:
        """Take the models that were loaded at the start; `begin` or `become` must follow.

        Args:
            catalog: the models.
            loader: loads others.
            store: where the set of models is kept.
            baseline: of the deployment, see `baseline_of`.
            drain_s: how long a model that is not served any more has for its requests.
        """
        self.catalog, self.current = catalog, ModelSet(baseline=baseline)
        self._loader, self._store, self._drain_s = loader, store, drain_s
        self._threads = PolicyThreads()
        self._prepared: dict[tuple[str, str], _Prepared] = {}
        # A bundle that is being loaded holds up nothing but other loads.
        self._loading, self._following = asyncio.Lock(), asyncio.Lock()
        self._failed = 0, 0.0  # the version that could not be served, and when

    def begin(self) -> None:
        """Make the models that were loaded at the start the set that is served. May block.

        To be called where no other process has the store. If the stored set has the same baseline,
        it is what was loaded.

        Raises:
            Unavailable: the store does not answer.
        """
        found, baseline = self._store.model_set(), self.current.baseline
        if found is None or found.baseline != baseline:
            served = {
                c.name: ServedBundle.of(c.bundle.given, c.bundle.sha256) for c in self.catalog
            }
            found = (found or ModelSet()).started(served, {}, baseline)
            self._store.put_model_set(found)
        self._adopt(found)

    async def prepare_all(
        self, folders: Iterable[str], configured: Mapping[str, Policy]
    ) -> dict[str, ServedBundle]:
        """Prepare bundles under their names, and return them.

        Raises:
            LoadFailed: one cannot be served, with its configured policy or else its own.
        """
        found = {}
        for given in folders:
            folder = given_path(given)
            if folder.name in found:
                raise LoadFailed(f"bundles: two have the name {folder.name}; rename one")
            sha256 = await self.prepare(folder.name, str(folder), configured)
            found[folder.name] = ServedBundle.of(folder, sha256)
        return found

    async def become(
        self, models: Mapping[str, ServedBundle], aliases: Mapping[str, str], baseline: str
    ) -> None:
        """Serve what the deployment's arguments say, unless the stored set builds on just that.

        Replicas race to store the same set: one wins, and the others follow.

        Raises:
            OfframpError: as `follow`.
        """
        while True:
            found = await self.newest()
            if found and found.baseline == baseline:
                break
            if await self.put((found or ModelSet()).started(models, aliases, baseline)):
                break
        await self.follow()

    def _adopt(self, found: ModelSet) -> None:
        models = {c.name: c for c in self.catalog}
        aliases = {a: each.model for a, each in found.aliases.items() if each.model in models}
        self.catalog.become(models, aliases)
        same = found.pins == {name: c.bundle.sha256 for name, c in models.items()}
        # Otherwise `follow` makes these models those of the set, or says why it cannot.
        self.current = found if same else found.model_copy(update={"version": 0})

    async def newest(self) -> ModelSet | None:
        """Return the newest stored set, of whatever deployment; None if there is none.

        Raises:
            Unavailable: the store does not answer.
        """
        return await self._threads.run(self._store.model_set)

    async def stored(self) -> ModelSet:
        """Return the newest set.

        Raises:
            Unavailable: the store does not answer, or another deployment takes this one's place.
        """
        found = await self.newest()
        if found is None:
            return self.current
        if not same_deployment(found.baseline, self.current.baseline):
            raise Unavailable("another deployment takes the place of this one; try again")
        return found

    async def put(self, wanted: ModelSet) -> bool:
        """Store a set that was made from the newest one; tell whether it was still the newest."""
        return await self._threads.run(self._store.put_model_set, wanted)

    async def prepare(
        self, name: str, folder: str, configured: Mapping[str, Policy] | None = None
    ) -> str:
        """Load a bundle beside what is served, and return its sha256; nothing else changes.

        Raises:
            LoadFailed: it cannot be served.
        """
        sha256 = await asyncio.to_thread(sha256_of_manifest, folder)
        if sha256 and self.known(name, sha256):
            await asyncio.to_thread(self._loader.verify, folder)
        classifier = await self._obtain(name, folder, sha256, configured)
        return classifier.bundle.sha256

    async def forget(self, name: str) -> None:
        """Give up what was prepared for a model."""
        async with self._following:
            for key in [key for key in self._prepared if key[0] == name]:
                self._give_up(key)

    async def follow(self) -> ModelSet:
        """Serve the newest set, and return what is served then.

        Raises:
            LoadFailed: one of its models cannot be served here; nothing has changed.
            Unavailable: the store does not answer.
        """
        async with self._following:
            found = await self.stored()
            if found.version != self.current.version:
                await self._become(found)
            return self.current

    async def look(self) -> None:
        """Do what is due every few seconds: follow a newer set, free models that no set took."""
        late_s = time.monotonic() - _PREPARED_S
        async with self._following:
            for key in [key for key, each in self._prepared.items() if each.since_s < late_s]:
                self._give_up(key)
        found = await self.newest()
        if found is None or not same_deployment(found.baseline, self.current.baseline):
            return
        version, failed_s = self._failed
        if version != found.version or time.monotonic() > failed_s + _TRY_AGAIN_S:
            await self.follow()

    async def _become(self, wanted: ModelSet) -> None:
        try:
            models = {
                name: await self._obtain(name, each.place, each.sha256)
                for name, each in wanted.models.items()
            }
            fresh = [c for c in models.values() if not c.started]
            for classifier in fresh:
                await self._threads.run(self.catalog.set_baseline, classifier)
        except OfframpError as error:
            self._failed = wanted.version, time.monotonic()
            self.catalog.unfollowed = str(error)
            raise
        for classifier in fresh:
            self._prepared.pop((classifier.name, classifier.bundle.sha256), None)
            classifier.start()
        old = [c for c in self.catalog if models.get(c.name) is not c]
        self.catalog.become(models, {a: each.model for a, each in wanted.aliases.items()})
        self.current, self.catalog.unfollowed = wanted, None
        for classifier in old:
            self.catalog.retire(classifier, self._drain_s)
        for classifier in fresh:  # a change of the policy may have found the old one until now
            with suppress(Unavailable):
                await self._threads.run(classifier.policy.refresh)
        if fresh:
            keep_objects()

    async def _obtain(
        self,
        name: str,
        folder: str,
        sha256: str | None,
        configured: Mapping[str, Policy] | None = None,
    ) -> Classifier:
        """Return a model that is served and runs, or that is prepared; otherwise load it."""
        if sha256 and (found := self.known(name, sha256)):
            return found
        async with self._loading:
            if sha256 and (found := self.known(name, sha256)):
                return found
            classifier = await asyncio.to_thread(self._loader.load, name, folder, sha256)
            try:
                policies = self.catalog.configured if configured is None else configured
                await self._threads.run(check_baseline, classifier, policies)
            except OfframpError as error:
                self.catalog.retire(classifier, 0.0)
                raise LoadFailed(str(error)) from None
            key = name, classifier.bundle.sha256
            self._prepared[key] = _Prepared(classifier, time.monotonic())
            return classifier

    def known(self, name: str, sha256: str) -> Classifier | None:
        """Return a model that is served and runs, or that is prepared."""
        for each in self.catalog:
            runs = each.alive or not each.started
            if runs and (each.name, each.bundle.sha256) == (name, sha256):
                return each
        found = self._prepared.get((name, sha256))
        return found.classifier if found else None

    def _give_up(self, key: tuple[str, str]) -> None:
        self.catalog.retire(self._prepared.pop(key).classifier, 0.0)
