"""Audits of a whole model: what they count is what its answers, asked for again in full, say."""

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from serve.audits.counts import REQUEST, AuditKey, Tally
from serve.bundle.loader import Bundle, load_bundle
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.classifier.classify_request import ClassifyRequest
from serve.dialects.v1.answer import write
from serve.policy.document import Audit, ExitChoice, Policy
from serve.policy.profile import Windows
from serve.rules import LayerRule, NeverRule
from serve.rules.replay import Recording
from serve.rules.traits import Task
from tests.serve.support.classifiers import running
from tests.serve.support.ladders import NEVER, SAFE, certificate, certify, rung
from tests.serve.support.task_bundles import EXITS, Kind, write_task_bundle
from tests.support.patience import until
from tests.support.tiny import WORDS

TOLERANCE = 0.5
CHOICE = TypeAdapter[ExitChoice](ExitChoice)
FIRST = LayerRule(layer=1)


def write_bundle(folder: Path, task: Task, **kind: Any) -> Bundle:
    out = write_task_bundle(folder, Kind(task, **kind), "tiny", sure=3.0)
    if task == "regression":
        rungs = [rung(NEVER, (0, 0, 1), 0)]
        own = {"exits": EXITS, "temperatures": [1.0] * len(EXITS), "rungs": rungs}
        certify(out, "fp32", **own, tolerance=TOLERANCE, metric=None)
    return load_bundle(out)


class Audited:
    """A model, and what its audits make of requests."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier

    def ask(self, texts: Sequence[str], rule: Any = FIRST, **fields: Any) -> list[dict[str, Any]]:
        """Classify texts; return the results as version 1 of the API shows them."""
        request = Classification(ClassifyRequest(inputs=list(texts), exit=rule, **fields))
        asyncio.run(self._classify(request))
        shown: list[dict[str, Any]] = json.loads(write(request).content)["results"]
        return shown

    def tally(self, num_texts: int) -> Tally:
        """Return what is counted without a promise, once so many texts have been audited."""
        counts = self.classifier.audits.counts
        until(lambda: sum(each.audited + each.skipped for each in counts().values()) >= num_texts)
        return counts()[AuditKey(REQUEST)]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Audit nothing meanwhile."""
        policy = self.classifier.policy
        live = policy.current.policy
        policy.change(live.model_copy(update={"audit": Audit(share=0)}), None)
        yield
        policy.change(live, None)

    async def _classify(self, request: Classification) -> None:
        await self.classifier.classify(request)
        await asyncio.sleep(0)


@contextmanager
def auditing(bundle: Bundle, **policy: Any) -> Iterator[Audited]:
    """Run a model of whose answers all are audited, without a bound on the lane."""
    whole = {"audit": {"share": 1}, "default": NEVER, **policy}
    with running(bundle, Policy.model_validate(whole)) as classifier:
        yield Audited(classifier)


def texts_of(number: int, most_words: int = 8) -> list[str]:
    draw = random.Random(number)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, most_words))) for _ in range(number)]


def different(task: Task, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Tell from shown results alone whether two answers are not the same."""
    if task == "regression":
        return abs(one["value"] - other["value"]) > TOLERANCE
    if task == "token":
        found = [[each | {"score": 0} for each in r["entities"]] for r in (one, other)]
        return found[0] != found[1]
    if task == "multi_label":
        return set(one["labels"]) != set(other["labels"])
    return bool(one["label"] != other["label"])


def far(task: Task, one: dict[str, Any], other: dict[str, Any]) -> bool:
    if task in ("regression", "token"):
        return False
    labels = list(one["scores"]) if task == "multi_label" else [one["label"]]
    return any(abs(one["scores"][each] - other["scores"][each]) > 0.1 for each in labels)


FLAGS: dict[Task, dict[str, float]] = {
    "single_label": {"positive": 0.6, "negative": 0.9},
    "multi_label": {"glad": 0.7},
    "token": {"PER": 0.6},
}
FLAGGED = "flagged"  # stands for the flag of the task
WAYS: dict[Task, list[dict[str, Any]]] = {
    "single_label": [
        {},
        {"flag": FLAGGED},
        {"windows": Windows(stride=4)},
        {"windows": Windows(combine="mean")},
        {"windows": Windows(combine="any"), "flag": FLAGGED},
    ],
    "multi_label": [
        {"flag": FLAGGED},
        {"windows": Windows(), "flag": FLAGGED},
        {"windows": Windows(combine="mean")},
    ],
    "regression": [{}, {"windows": Windows()}],
    "token": [
        {},
        {"aggregation": "none"},
        {"windows": Windows(stride=6), "flag": FLAGGED},
        {"windows": Windows(combine="any"), "flag": FLAGGED},
    ],
}


def expected(task: Task, early: list[dict[str, Any]], full: list[dict[str, Any]]) -> Tally:
    """Return what audits must count, from shown results alone."""
    pairs = list(zip(early, full, strict=True))
    differ = sum(different(task, *pair) for pair in pairs)
    assert differ, "a test without a planted difference shows nothing"
    flags = [[each.get("flagged", False) for each in pair] for pair in pairs]
    return Tally(
        audited=len(pairs),
        early=len(pairs),
        differ=differ,
        score_differ=sum(far(task, *pair) for pair in pairs),
        by_exit={1: (len(pairs), differ)},
        flagged=sum(other for _, other in flags),
        missed=sum(other and not one for one, other in flags),
        false_alarms=sum(one and not other for one, other in flags),
    )


@pytest.mark.parametrize("task", WAYS)
def test_what_audits_count_is_what_answers_that_ran_in_full_say(tmp_path: Path, task: Task) -> None:
    total = Tally()
    with auditing(write_bundle(tmp_path, task)) as audited:
        for way in WAYS[task]:
            fields = way | ({"flag": FLAGS[task]} if "flag" in way else {})
            texts = texts_of(40, 120 if "windows" in way else 8)
            early = audited.ask(texts, FIRST, **fields)
            tally = audited.tally(total.audited + len(texts))
            # Without audits, which would be counted too.
            with audited.paused():
                full = audited.ask(texts, NeverRule(), **fields)
            total = total + expected(task, early, full)
            left_out = {"since", "days", *(["score_differ"] if task == "token" else [])}
            assert tally.model_dump(exclude=left_out) == total.model_dump(exclude=left_out), way


@pytest.mark.parametrize("task", WAYS)
def test_answers_at_full_depth_agree_and_none_is_early(tmp_path: Path, task: Task) -> None:
    with auditing(write_bundle(tmp_path, task)) as audited:
        audited.ask(texts_of(10), NeverRule())
        audited.ask(texts_of(10, 120), NeverRule(), windows=Windows(stride=4))
        tally = audited.tally(20)
    assert (tally.audited, tally.early, tally.differ, tally.score_differ) == (20, 0, 0, 0)


@pytest.mark.parametrize(("task", "learned"), [("single_label", True), ("token", False)])
def test_a_record_replays_to_the_answer_that_was_sent_and_holds_no_text(
    tmp_path: Path, task: Task, learned: bool
) -> None:
    text = "w1 w7 w3 w4"
    with auditing(write_bundle(tmp_path, task, learned=learned)) as audited:
        sent = audited.ask([text])
        audited.tally(1)
        (record,) = audited.classifier.audits.log.records()
        traits, entities = audited.classifier.traits, audited.classifier.entities
        (row,) = record.rows
        counted = None if row.counted is None else row.counted[None]
        uncertainty = None if row.uncertainty is None else row.uncertainty[:, None]
        temperatures = (1.0,) * len(EXITS)
        recording = Recording(traits, temperatures, row.logits[:, None], counted, uncertainty)
        taken = recording.taken(FIRST)
    assert record.profile == REQUEST
    assert taken.exits.tolist() == [0]
    assert (row.uncertainty is not None) == learned
    if entities is None:
        assert traits.labels[taken.logits[0].argmax()] == sent[0]["label"]
    held = repr(record) + repr([array for array in row if array is not None])
    assert not any(word in held for word in text.split())
    assert not any(isinstance(each, np.ndarray) and each.dtype.kind == "i" for each in row)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = write_task_bundle(tmp_path_factory.mktemp("certified"), Kind("single_label"), "tiny")
    rungs = [
        rung(NEVER, (0, 0, 1), 0),
        rung(SAFE, (0.5, 0.3, 0.2), 0.006, certificate("disagreement", 0.01, 0.006)),
    ]
    own = {"exits": EXITS, "temperatures": [1.0] * len(EXITS), "rungs": rungs}
    return load_bundle(certify(out, "fp32", **own))


def keys_of(audited: Audited, num_texts: int) -> dict[AuditKey, int]:
    def counted() -> dict[AuditKey, int]:
        return {key: tally.audited for key, tally in audited.classifier.audits.counts().items()}

    until(lambda: sum(counted().values()) >= num_texts)
    return counted()


def test_texts_are_counted_by_profile_and_by_what_was_promised_of_them(certified: Bundle) -> None:
    profiles = {"sure": {"target": {"max_disagreement": 0.01}}, "plain": SAFE}
    with auditing(certified, default="sure", profiles=profiles) as audited:
        for choice in (None, "sure", "plain", FIRST, CHOICE.validate_python(profiles["sure"])):
            audited.ask(["w1 w2"], choice)
        audited.ask(["w1 " * 100, "w1"], "sure", windows=Windows())
        keys = keys_of(audited, 7)
    promised = {key.profile: key.promise for key in keys if key.promise}
    assert sorted(promised) == [REQUEST, "sure"]
    assert keys == {
        AuditKey("sure", promised["sure"]): 3,
        AuditKey("plain"): 1,
        AuditKey(REQUEST): 1,
        AuditKey(REQUEST, promised[REQUEST]): 1,
        AuditKey("sure"): 1,  # the text in several windows
    }
    assert [(b.loss, b.epsilon) for b in promised["sure"].bounds] == [("disagreement", 0.01)]
    assert (promised["sure"].since, promised[REQUEST].since) == (1, 0)


def test_a_request_that_fails_or_is_cancelled_is_not_audited(certified: Bundle) -> None:
    async def leave(audited: Audited) -> None:
        asked = asyncio.ensure_future(
            audited.classifier.classify(Classification(ClassifyRequest(inputs="w1")))
        )
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    with auditing(certified) as audited:
        asyncio.run(leave(audited))
        audited.ask(["w1"])
        assert keys_of(audited, 1) == {AuditKey(REQUEST): 1}


def test_a_model_with_one_exit_and_a_regression_without_a_tolerance_are_not_audited(
    tmp_path: Path, certified: Bundle
) -> None:
    value = load_bundle(write_task_bundle(tmp_path, Kind("regression"), "tiny"))
    for bundle in (certified.presenting([4]), value):
        with auditing(bundle) as audited:
            audited.ask(["w1"], NeverRule())
            audited.classifier.audits.stop()
            assert not len(audited.classifier.audits.counts())
