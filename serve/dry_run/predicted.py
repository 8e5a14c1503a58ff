"""What a policy would do to recorded texts, and to those that were audited."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from serve.audits.record import AuditRecord
from serve.bundle.recording import RECORDING
from serve.classifier.classifier import Classifier
from serve.dry_run.answers import AnswerReader
from serve.dry_run.exit_trial import TooLong, Totals, Trial, Which
from serve.dry_run.texts import Texts
from serve.errors import InvalidBundle, InvalidRule
from serve.policy.applied import AppliedPolicy
from serve.policy.document import DEFAULT, Policy
from serve.policy.resolution import ChosenExit
from serve.rules.replay import Recording, unjudged_before

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


class OnRecording(NamedTuple):
    """What would become of recorded texts.

    Attributes:
        source: the recording; None if there is none.
        texts: number of texts.
        found: what each exit would do, by place.
    """

    source: Source | None
    texts: int
    found: dict[Place, Found]


class OnAudits(NamedTuple):
    """What would become of audited texts.

    Attributes:
        texts: number of texts.
        found: what each exit would do, by place: to the texts that the same name has answered, and
            to all texts.
    """

    texts: int
    found: dict[Place, tuple[Found, Found]]

    def to_bytes(self) -> bytes:
        """Return it compressed, as replicas send it to each other."""
        rows = [[*place, *both] for place, both in self.found.items()]
        return zlib.compress(json.dumps([self.texts, rows]).encode(), 1)

    @classmethod
    def sum(cls, contents: Iterable[bytes]) -> "OnAudits":
        """Return the sums over the texts of all that `to_bytes` has written."""
        total, found = 0, dict[Place, tuple[Found, Found]]()
        for content in contents:
            texts, rows = json.loads(zlib.decompress(content))
            total += texts
            for name, when, own, every in rows:
                mine = found.get(Place(name, when), (Totals(), Totals()))
                found[Place(name, when)] = _sum(mine[0], own), _sum(mine[1], every)
        return cls(total, found)


def _sum(one: Found, other: str | list[float]) -> Found:
    if isinstance(other, str):
        return one if isinstance(one, Totals) and one.texts else other
    more = Totals._make(other)
    return more if isinstance(one, str) else one.plus(more)


def exits_of(before: AppliedPolicy, after: AppliedPolicy | None) -> Exits:
    """Return what the default and the profiles are before and after a change."""
    found = {Place(name, "before"): chosen for name, chosen in before.named.items()}
    later = after.named if after else {}
    return found | {Place(name, "after"): chosen for name, chosen in later.items()}


def on_audits_here(classifier: Classifier, policy: str | None) -> bytes:
    """Try the live policy, and another one, on the texts that this process has audited.

    Args:
        classifier: the model.
        policy: the other policy, as JSON; None to try the live one alone.

    Returns:
        An `OnAudits` as bytes.

    Raises:
        InvalidRule: the model cannot follow the policy.
    """
    entry, applied, *_ = classifier.policy.live
    after = policy and AppliedPolicy(Policy.model_validate_json(policy), classifier.ladder)
    exits = exits_of(applied, after or None)
    return _on_audits(classifier, classifier.audits.log.records(), entry.policy, exits).to_bytes()


def _on_audits(
    classifier: Classifier, records: Sequence[AuditRecord], policy: Policy, exits: Exits
) -> OnAudits:
    """Try exits on audited texts; `policy` is the one that is live."""
    if not records:
        return OnAudits(0, dict.fromkeys(exits, (Totals(), Totals())))
    texts = Texts.audited(records, classifier.traits, classifier.temperatures)
    trial = _trial(classifier, texts)
    found: dict[Place, tuple[Found, Found]] = {}
    for place, chosen in exits.items():
        name = place.name
        if name == DEFAULT and isinstance(policy.default, str):
            name = policy.default
        own = _tried(trial, chosen, texts.profiles == name)
        found[place] = own, _tried(trial, chosen, None)
    return OnAudits(len(texts), found)


def on_recording(classifier: Classifier, exits: Exits) -> OnRecording:
    """Try exits on the texts that the bundle has a recording of."""
    source, recording = _recording(classifier)
    if recording is None:
        return OnRecording(None, 0, {})
    texts = Texts.recorded(recording)
    trial = _trial(classifier, texts)
    found = {place: _tried(trial, chosen, None) for place, chosen in exits.items()}
    return OnRecording(source, len(texts), found)


def _trial(classifier: Classifier, texts: Texts) -> Trial:
    certified = classifier.ladder.certified
    tolerance = certified.tolerance if certified else None
    reader = AnswerReader(classifier.traits, classifier.scores, tolerance)
    return Trial(texts, classifier.ladder, reader)


def _tried(trial: Trial, chosen: ChosenExit, which: Which | None) -> Found:
    try:
        return trial.totals(chosen, which)
    except (InvalidRule, TooLong) as error:
        return str(error)


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
    logits = unjudged_before(logits, classifier.traits.num_before)
    return "training", Recording(classifier.traits, classifier.temperatures, logits)
