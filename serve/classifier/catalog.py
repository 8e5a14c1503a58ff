"""The models that one process serves, by name and alias."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from serve.classifier.classifier import Classifier
from serve.errors import InvalidBundle, InvalidRequest, InvalidRule, UnknownModel
from serve.policy.document import Policy
from serve.policy.model_set import DEFAULT_ALIAS

_NO_ALIASES: Final[Mapping[str, str]] = MappingProxyType({})


class Catalog:
    """The served models. They change as a whole, and requests keep those that they have found.

    Attributes:
        aliases: the model that each alias names.
        configured: the policies that models start from in the place of their bundles', by name.
        unnamed: the model for requests that name none: that of the alias `default`, or else the
            only one; None if there is neither.
        config_problem: why the policies that the deployment's config has now are not applied, and
            those before them are; None if they are.
        unfollowed: why this process does not serve the models that it should; None if it does.
    """

    def __init__(self, classifiers: Sequence[Classifier]) -> None:
        """Take models whose names differ."""
        self.config_problem: str | None = None
        self.unfollowed: str | None = None
        self.aliases = _NO_ALIASES
        self._watchers: list[Callable[[], None]] = []
        self._retiring: set[asyncio.Task[None]] = set()
        self.configured: Mapping[str, Policy] = {}
        self.become({c.name: c for c in classifiers}, _NO_ALIASES)

    def become(self, models: Mapping[str, Classifier], aliases: Mapping[str, str]) -> None:
        """Serve these models, from the next request on. On the event loop, once there is one."""
        self._by_name = dict(models)
        self.aliases = MappingProxyType(dict(aliases))
        named = {alias: models[model] for alias, model in aliases.items()}
        self._found = {**self._by_name, **named}
        only = next(iter(models.values())) if len(models) == 1 else None
        self.unnamed = named.get(DEFAULT_ALIAS, only)
        for classifier in self:
            engines = [engine for each in models.values() for engine in each.engines]
            classifier.engine.neighbours = [e for e in engines if e is not classifier.engine]
        for changed in self._watchers:
            changed()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call this now, and whenever other models or aliases are there."""
        self._watchers.append(changed)
        changed()

    def __iter__(self) -> Iterator[Classifier]:
        return iter(self._by_name.values())

    @property
    def found(self) -> Mapping[str, Classifier]:
        """The models by all names that requests may give: their own, and aliases."""
        return self._found

    def find(self, name: str) -> Classifier:
        """Return the model of this name or alias.

        Raises:
            UnknownModel: there is none; the message names the served models.
        """
        try:
            return self._found[name]
        except KeyError:
            raise UnknownModel(f"no model {name!r}; served are {self._names()}") from None

    def pick(self, name: str | None) -> Classifier:
        """Return the model that a request names, or the one for requests that name none.

        Raises:
            UnknownModel: there is no such model, or none at all.
            InvalidRequest: none is named of several.
        """
        if name is not None:
            return self.find(name)
        if self.unnamed is not None:
            return self.unnamed
        if not self._by_name:
            raise UnknownModel("no model is served; load one")
        raise InvalidRequest(f"model: required when several are served: {self._names()}")

    def retire(self, classifier: Classifier, drain_s: float) -> None:
        """End a model that is not served any more, once its requests are answered."""
        task = asyncio.create_task(classifier.retire(drain_s))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def retired(self) -> None:
        """Return when all models have ended that are not served any more."""
        if self._retiring:
            await asyncio.wait(self._retiring)

    def start(self) -> None:
        """Start every engine."""
        for classifier in self:
            classifier.start()

    def stop(self, drain_s: float) -> None:
        """Answer the admitted requests, then stop every engine.

        Args:
            drain_s: for each engine; requests that are not answered by then are given up.
        """
        for classifier in self:
            classifier.stop(drain_s)

    def faults(self) -> list[str]:
        """Return the names of models whose engine does not run."""
        return [c.name for c in self if not c.alive]

    def set_baselines(self, configured: Mapping[str, Policy], loadable: Iterable[str] = ()) -> None:
        """Start every model from its configured policy, or else from its bundle's; all or none.

        Args:
            configured: by model. They hold for models that are loaded later, too.
            loadable: names beside those of served models that policies may be for.

        Raises:
            InvalidRule: of the configured policies; it names all that is wrong with them.
            InvalidBundle: a model cannot follow its bundle's policy.
        """
        known = {*self._by_name, *loadable}
        problems = [
            f"policies.{name}: no such model; served are {self._names()}"
            for name in configured
            if name not in known
        ]
        for classifier in self:
            try:
                check_baseline(classifier, configured)
            except InvalidRule as error:
                problems.append(f"policies.{classifier.name}: {error}")
        if problems:
            raise InvalidRule("; ".join(problems))
        self.configured = configured
        for classifier in self:
            self.set_baseline(classifier)

    def set_baseline(self, classifier: Classifier) -> None:
        """Start a model from its configured policy, or else from its bundle's. May block."""
        own = self.configured.get(classifier.name)
        if own:
            classifier.policy.set_baseline(own, "config")
        else:
            classifier.policy.set_baseline(classifier.bundle.manifest.policy, "bundle")

    def adopt_stored(self) -> bool:
        """Apply the newest stored policy of every model; tell whether each of them has one."""
        for classifier in self:
            classifier.policy.refresh()
        return all(classifier.policy.ready for classifier in self)

    def _names(self) -> str:
        return ", ".join(self._found) or "none"


def check_baseline(classifier: Classifier, configured: Mapping[str, Policy]) -> None:
    """Check that a model can follow its configured policy, or else its bundle's.

    Raises:
        InvalidRule: it cannot follow the configured one.
        InvalidBundle: it cannot follow its bundle's.
    """
    own = configured.get(classifier.name)
    try:
        classifier.policy.check_baseline(own or classifier.bundle.manifest.policy)
    except InvalidRule as error:
        if own is None:
            raise InvalidBundle(f"{classifier.bundle.folder}: policy: {error}") from None
        raise
