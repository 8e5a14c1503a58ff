"""The models that one process serves, by name."""

import logging
from collections.abc import Iterator, Mapping, Sequence

from serve.classifier.classifier import Classifier
from serve.errors import InvalidBundle, InvalidRequest, InvalidRule, UnknownModel
from serve.policy.document import Policy

log = logging.getLogger(__name__)


class Catalog:
    """The served models.

    Attributes:
        config_problem: why the policies that the deployment's config has now are not applied, and
            those before them are; None if they are.
    """

    def __init__(self, classifiers: Sequence[Classifier]) -> None:
        """Take models whose names differ."""
        self.config_problem: str | None = None
        self._by_name = {c.name: c for c in classifiers}
        for classifier in classifiers:
            classifier.engine.neighbours = [c.engine for c in classifiers if c is not classifier]

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
            classifier.audits.stop()

    def faults(self) -> list[str]:
        """Return the names of models whose engine does not run."""
        return [c.name for c in self if not c.engine.alive]

    def set_baselines(self, configured: Mapping[str, Policy]) -> None:
        """Start every model from its configured policy, or else from its bundle's; all or none.

        Raises:
            InvalidRule: of the configured policies; it names all that is wrong with them.
            InvalidBundle: a model cannot follow its bundle's policy.
        """
        problems = [
            f"policies.{name}: no such model; served are {self._names()}"
            for name in configured
            if name not in self._by_name
        ]
        for classifier in self:
            own = configured.get(classifier.name)
            try:
                classifier.policy.check_baseline(own or classifier.bundle.manifest.policy)
            except InvalidRule as error:
                if own is None:
                    raise InvalidBundle(f"{classifier.bundle.folder}: policy: {error}") from None
                problems.append(f"policies.{classifier.name}: {error}")
        if problems:
            raise InvalidRule("; ".join(problems))
        for classifier in self:
            if own := configured.get(classifier.name):
                classifier.policy.set_baseline(own, "config")
            else:
                classifier.policy.set_baseline(classifier.bundle.manifest.policy, "bundle")

    def adopt_stored(self) -> bool:
        """Apply the newest stored policy of every model; tell whether each of them has one."""
        for classifier in self:
            classifier.policy.refresh()
        return all(classifier.policy.ready for classifier in self)

    def _names(self) -> str:
        return ", ".join(self._by_name)
