"""The models that one process serves, by name."""

import logging
from collections.abc import Iterator, Mapping, Sequence

from serve.classifier.classifier import Classifier
from serve.errors import InvalidBundle, InvalidRequest, InvalidRule, UnknownModel
from serve.policy.document import Policy

log = logging.getLogger(__name__)


class Catalog:
    """The served models."""

    def __init__(self, classifiers: Sequence[Classifier]) -> None:
        """Take models whose names differ."""
        self._by_name = {c.name: c for c in classifiers}

    def __iter__(self) -> Iterator[Classifier]:
        return iter(self._by_name.values())

    def find(self, name: str) -> Classifier:
        """Return the model of this name.

        Raises:
            UnknownModel: there is none; the message names the served models.
        """
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownModel(f"no model {name!r}; served are {self._names()}") from None

    def pick(self, name: str | None) -> Classifier:
        """Return the model that a request names, or the only model if the request names none."""
        if name is not None:
            return self.find(name)
        if len(self._by_name) == 1:
            return next(iter(self))
        raise InvalidRequest(f"model: required when several are served: {self._names()}")

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
            if not classifier.engine.stop(drain_s):
                log.warning("%s: stopped with requests unanswered", classifier.name)

    def faults(self) -> list[str]:
        """Return the names of models whose engine does not run."""
        return [c.name for c in self if not c.engine.alive]

    def set_baselines(self, configured: Mapping[str, Policy]) -> list[str]:
        """Start every model from its configured policy, or else from its bundle's.

        A configured policy that its model cannot follow is not applied.

        Returns:
            The problems with the configured policies, one sentence each.

        Raises:
            InvalidBundle: a model has no policy yet, and cannot follow its bundle's.
        """
        problems = [
            f"policies.{name}: no such model; served are {self._names()}"
            for name in configured
            if name not in self._by_name
        ]
        for classifier in self:
            try:
                self._set_baseline(classifier, configured.get(classifier.name))
            except InvalidRule as error:
                problems.append(f"policies.{classifier.name}: {error}")
                if not classifier.policy.ready:
                    self._start_from_bundle(classifier)
        return problems

    def _set_baseline(self, classifier: Classifier, configured: Policy | None) -> None:
        if configured is None:
            classifier.policy.set_baseline(classifier.bundle.manifest.policy, "bundle")
        else:
            classifier.policy.set_baseline(configured, "config")

    def _start_from_bundle(self, classifier: Classifier) -> None:
        try:
            self._set_baseline(classifier, None)
        except InvalidRule as error:
            raise InvalidBundle(f"{classifier.bundle.folder}: policy: {error}") from None

    def _names(self) -> str:
        return ", ".join(self._by_name)
