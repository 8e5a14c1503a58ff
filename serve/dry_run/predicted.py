"""What a policy would do to recorded texts, and to those that were audited."""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.audits.record import AuditRecord
from serve.bundle.recording import RECORDING
from serve.classifier.classifier import Classifier
from serve.dry_run.answers import AnswerReader
from serve.dry_run.replayed import Replay, TooLong
from serve.dry_run.texts import Texts
from serve.dry_run.totals import Totals
from serve.errors import InvalidBundle, InvalidRule
from serve.policy.applied import AppliedPolicy
from serve.policy.chosen_exit import ChosenExit
from serve.policy.document import DEFAULT, Policy
from serve.rules.replay import Recording

# `certifying`: the texts that certify the variant. `training`: those that the model was measured
# on after its training, in the precision that it was trained in.
Source: TypeAlias = Literal["certifying", "training"]


class Place(NamedTuple):
    """The default or a profile, before or after."""

    name: str
    when: Literal["before", "after"]


Exits: TypeAlias = Mapping[Place, ChosenExit]
# What an exit would do; or why that is not known.
Found: TypeAlias = Totals | str


class Expected(NamedTuple):
    """What would become of recorded texts.

    Attributes:
        source: which texts they are; None if nothing is recorded.
        texts: how many.
        found: by place.
    """

    source: Source | None
    texts: int
    found: dict[Place, Found]


class Live(NamedTuple):
    """What would become of audited texts.

    Attributes:
        texts: how many there are.
        own: of the texts that were answered by the same name.
        every: of all texts.
    """

    texts: int
    own: dict[Place, Found]
    every: dict[Place, Found]

    def to_bytes(self) -> bytes:
        """Return it compressed, as replicas send it to each other."""
        places = [[*place, self.own[place], found] for place, found in self.every.items()]
        return zlib.compress(json.dumps([self.texts, places]).encode(), 1)

    @classmethod
    def of_bytes(cls, content: bytes) -> "Live":
        """Return what `to_bytes` has written."""
        texts, places = json.loads(zlib.decompress(content))
        own = {Place(name, when): _read(found) for name, when, found, _ in places}
        every = {Place(name, when): _read(found) for name, when, _, found in places}
        return cls(texts, own, every)

    @classmethod
    def sum(cls, contents: Iterable[bytes]) -> "Live":
        """Return the sums over the texts of all."""
        total = cls(0, {}, {})
        for each in map(cls.of_bytes, contents):
            own, every = _sums(total.own, each.own), _sums(total.every, each.every)
            total = cls(total.texts + each.texts, own, every)
        return total


def exits_of(before: AppliedPolicy, after: AppliedPolicy | None) -> Exits:
    """Return what the default and the profiles are before and after a change."""
    found = {Place(name, "before"): chosen for name, chosen in before.named.items()}
    later = after.named if after else {}
    return found | {Place(name, "after"): chosen for name, chosen in later.items()}


def live_here(classifier: Classifier, policy: str | None) -> bytes:
    """Try the live policy, and another one, on the texts that this process has audited.

    Args:
        classifier: of the model.
        policy: the other one, as JSON; None for the live one alone.

    Returns:
        A `Live` as bytes.

    Raises:
        InvalidRule: the model cannot follow the policy.
    """
    entry, applied, *_ = classifier.policy.live
    after = policy and AppliedPolicy(Policy.model_validate_json(policy), classifier.ladder)
    exits = exits_of(applied, after or None)
    return live(classifier, classifier.audits.log.records(), entry.policy, exits).to_bytes()


def expected(classifier: Classifier, exits: Exits) -> Expected:
    """Try exits on the texts that the bundle has a recording of."""
    source, recording = _recording(classifier)
    if recording is None:
        return Expected(None, 0, {})
    replay = Replay(Texts.recorded(recording), classifier.ladder, _reader(classifier))
    every = np.ones(len(replay.texts), np.bool_)
    return Expected(source, len(every), _tried(replay, exits, lambda name: every))


def live(
    classifier: Classifier, records: Sequence[AuditRecord], policy: Policy, exits: Exits
) -> Live:
    """Try exits on audited texts; `policy` is the one that is live."""
    if not records:
        return Live(0, dict.fromkeys(exits, Totals()), dict.fromkeys(exits, Totals()))
    texts = Texts.audited(records, classifier.traits, classifier.temperatures)
    replay = Replay(texts, classifier.ladder, _reader(classifier))
    every = np.ones(len(texts), np.bool_)

    def own(name: str) -> NDArray[np.bool_]:
        by_default = policy.default if isinstance(policy.default, str) else name
        same: NDArray[np.bool_] = texts.profiles == (by_default if name == DEFAULT else name)
        return same

    found = _tried(replay, exits, lambda name: every)
    return Live(len(texts), _tried(replay, exits, own), found)


def _tried(
    replay: Replay, exits: Exits, chosen: Callable[[str], NDArray[np.bool_]]
) -> dict[Place, Found]:
    found: dict[Place, Found] = {}
    for place, exit_ in exits.items():
        try:
            found[place] = Totals.of(replay.of(exit_), chosen(place.name))
        except (InvalidRule, TooLong) as error:
            found[place] = str(error)
    return found


def _recording(classifier: Classifier) -> tuple[Source | None, Recording | None]:
    bundle, precision = classifier.bundle, classifier.precision
    try:
        if kept := bundle.certifying(precision):
            return "certifying", kept
        logits = bundle.recording if RECORDING in bundle.manifest.files else None
    except InvalidBundle:  # such as one of more exits than are active
        return None, None
    if logits is None:
        return None, None
    return "training", Recording(classifier.traits, classifier.temperatures, logits)


def _reader(classifier: Classifier) -> AnswerReader:
    certified = classifier.ladder.certified
    tolerance = certified.tolerance if certified else None
    return AnswerReader(classifier.traits, classifier.scores, tolerance)


def _read(found: str | list[float]) -> Found:
    return found if isinstance(found, str) else Totals._make(found)


def _sums(one: Mapping[Place, Found], other: Mapping[Place, Found]) -> dict[Place, Found]:
    places = [*one, *(place for place in other if place not in one)]
    return {place: _sum(one.get(place, Totals()), other.get(place, Totals())) for place in places}


def _sum(one: Found, other: Found) -> Found:
    if isinstance(other, str):
        return one if isinstance(one, Totals) and one.texts else other
    return other if isinstance(one, str) else one.plus(other)
