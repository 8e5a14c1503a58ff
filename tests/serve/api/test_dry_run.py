"""Trying a change of a policy: what it would do, on recorded texts and on audited ones."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from models.quality.recorded import Recorded, recorded
from models.quality.source import BundleSource
from serve.audits.record import AuditLog, AuditRecord, RowLogits
from serve.bundle.loader import load_bundle
from serve.classifier.classifier import Classifier
from serve.dry_run import exit_trial, predicted
from serve.rules.traits import Task
from serve.runtime.placement import Placement
from serve.standalone import standalone_context
from serve.tokenization.tokenizer import Text
from tests.serve.support.live_server import LiveServer, Problem, config_of, serving
from tests.serve.support.task_bundles import LABELS, Kind, write_task_bundle
from tests.support.tiny import WORDS

STREAM = 400
LOOSE, PATIENT, FIRST = (
    {"rule": "entropy", "threshold": 0.6},
    {"rule": "patience", "patience": 2},
    {"rule": "layer", "layer": 1},
)
NEVER = {"rule": "never"}


class Tried:
    """A server whose model has a stream of texts, and audits of some of them."""

    def __init__(self, server: LiveServer, classifier: Classifier, stream: Recorded) -> None:
        self.server, self.classifier, self.stream = server, classifier, stream
        self.path = f"/v1/models/{classifier.name}/policy"
        self.texts: list[str] = []

    def audit(self, rows: range, profile: str = "default") -> None:
        for row in rows:
            self.classifier.audits.log.add(AuditRecord(profile, (self.row(row),)))

    def row(self, row: int) -> RowLogits:
        width = int(self.stream.num_tokens[row])
        if self.stream.counted is None:
            return RowLogits(self.stream.logits[:, row])
        return RowLogits(self.stream.logits[:, row, :width], None, self.stream.counted[row, :width])

    def ask(self, **body: Any) -> dict[str, Any]:
        response = self.server.http.post(f"{self.path}/dry-run", json=body)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def refused(self, **body: Any) -> Problem:
        return Problem.of(self.server.http.post(f"{self.path}/dry-run", json=body))


class Made(NamedTuple):
    """A bundle of a task, with exits after layers 1, 2 and 4, and a stream of texts through it."""

    folder: Path
    texts: list[str]
    stream: Recorded


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Task], Made]:
    @cache
    def made(task: Task) -> Made:
        folder = write_task_bundle(tmp_path_factory.mktemp(task), Kind(task), alike=True)
        draw = np.random.default_rng(1)
        texts = [" ".join(draw.choice(WORDS, draw.integers(1, 12))) for _ in range(STREAM)]
        source = BundleSource(load_bundle(folder), Placement("cpu", "fp32"))
        return Made(folder, texts, recorded(source, [Text(text) for text in texts]))

    return made


@pytest.fixture
def start(made: Callable[[Task], Made]) -> Iterator[Callable[..., Tried]]:
    """Start a server of a task's bundle."""
    with ExitStack() as stack:

        def start(task: Task = "single_label") -> Tried:
            folder, texts, stream = made(task)
            context = standalone_context(config_of(folder))
            (classifier,) = context.catalog
            tried = Tried(stack.enter_context(serving(context)), classifier, stream)
            tried.texts = texts
            return tried

        yield start


def answered(tried: Tried, exit_: Any) -> list[tuple[Any, int]]:
    """Return the stream's answers and layers under a policy with this default."""
    tried.server.put_policy({"default": exit_}, tried.classifier.name).raise_for_status()
    results: list[dict[str, Any]] = []
    for start in range(0, STREAM, 100):
        results += tried.server.answer(tried.texts[start : start + 100])["results"]
    return [(said(result), result["exit"]["layer"]) for result in results]


def said(result: dict[str, Any]) -> Any:
    if "entities" in result:
        return [(e["entity"], e["token_start"], e["token_end"]) for e in result["entities"]]
    return sorted(result["labels"]) if "labels" in result else result["label"]


@pytest.mark.parametrize("task", [task for task in LABELS if task != "regression"])
def test_what_then_happens_lies_within_what_half_of_the_texts_predict_and_is_what_all_do(
    start: Callable[..., Tried], task: Task
) -> None:
    tried, exits = start(task), (LOOSE, PATIENT, FIRST)

    def predicted_for(exit_: Any) -> dict[str, Any]:
        found = tried.ask(policy={"default": exit_})["profiles"]["default"]["after"]["live"]
        return dict(found)

    tried.audit(range(0, STREAM, 2))
    half = [predicted_for(exit_) for exit_ in exits]
    tried.audit(range(1, STREAM, 2))
    whole = [predicted_for(exit_) for exit_ in exits]
    full, moved = answered(tried, NEVER), False
    for exit_, some, every in zip(exits, half, whole, strict=True):
        found = answered(tried, exit_)
        layers = np.mean([layer for _, layer in found])
        differ = np.mean([a[0] != b[0] for a, b in zip(found, full, strict=True)])
        assert some["layers_interval"][0] <= layers <= some["layers_interval"][1]
        assert some["interval"][0] <= differ <= some["interval"][1]
        assert (some["texts"], some["of"]) == (STREAM // 2, "profile")
        assert every["disagreement"] == differ
        assert every["layers"] == pytest.approx(layers, 1e-12)
        moved |= differ > 0
    assert moved, "some policy answers otherwise than full depth"


def test_few_audits_of_a_profile_are_replaced_by_those_of_all(start: Callable[..., Tried]) -> None:
    tried = start()
    tried.server.put_policy(
        {"default": "a", "profiles": {"a": LOOSE, "b": FIRST}}, "single_label"
    ).raise_for_status()
    tried.audit(range(40), "a")
    few = tried.ask(patch={"profiles": {"c": NEVER}})
    assert (few["audits"], few["audits_of"]) == (40, {"replicas": 1, "missing": 0})
    assert all(few["profiles"][name]["before"]["live"]["too_few"] for name in ("default", "a", "b"))
    tried.audit(range(40, 140), "a")
    tried.audit(range(140, 150), "b")
    found = tried.ask(patch={"profiles": {"c": NEVER}})["profiles"]
    live = {name: profile["after"]["live"] for name, profile in found.items()}
    texts = {name: (each["of"], each["texts"]) for name, each in live.items()}
    own, every = ("profile", 140), ("all", 150)
    assert texts == {"default": own, "a": own, "b": every, "c": every}
    assert not any("too_few" in each for each in live.values())


def test_new_profiles_have_no_before_and_dropped_ones_no_after(
    start: Callable[..., Tried],
) -> None:
    tried = start()
    before = {"default": LOOSE, "profiles": {"old": FIRST}}
    tried.server.put_policy(before, "single_label").raise_for_status()
    limits = {"min_layer": 2}
    found = tried.ask(policy={"default": LOOSE, "profiles": {"new": NEVER}, "limits": limits})
    sides = {name: sorted(profile) for name, profile in found["profiles"].items()}
    assert sides == {"default": ["after", "before"], "old": ["before"], "new": ["after"]}
    assert found["changes"]["limits.min_layer"] == [None, 2]
    assert found["changes"]["profiles.old"] == [FIRST, None]
    after = found["profiles"]["default"]["after"]["resolved"]
    assert after["rule"] == {**LOOSE, "min_layer": 2}
    assert tried.server.http.get(tried.path).json()["policy"] == {
        **before,
        "limits": {"overrides": "any"},
    }


REFUSED: list[tuple[dict[str, Any], bool]] = [
    ({"policy": {"profiles": {}}}, False),
    ({"policy": None}, False),
    ({"policy": {"default": "no-such"}}, False),
    ({"policy": {"default": {"rule": "layer", "layer": 3}}}, False),
    ({"policy": {"default": {"target": {"max_missed": 0.01}}}}, False),
    ({"policy": {"default": {"target": {"max_layers": 1, "max_disagreement": 0.01}}}}, True),
    ({"policy": {"default": {"target": {"speedup": 900}}}}, True),
]


def test_what_a_put_would_refuse_is_a_problem(start: Callable[..., Tried]) -> None:
    tried = start()
    for body, followed in REFUSED:
        problem = Problem.of(tried.server.put_policy(body["policy"], "single_label"))
        found = tried.ask(**body)
        assert found["problem"] == problem.message
        assert ("after" in found["profiles"]["default"]) == followed
        assert "before" in found["profiles"]["default"]


def test_a_change_from_another_version_is_refused(start: Callable[..., Tried]) -> None:
    tried = start()
    assert tried.ask(policy={"default": NEVER}, version=1)["version"] == 1
    problem = tried.refused(policy={"default": NEVER}, version=2)
    assert (problem.status, problem.code) == (409, "version_conflict")
    for body in ({"policy": {"default": NEVER}, "patch": {}}, {"version": 1}):
        assert tried.refused(**body)[:2] == (422, "invalid_request")


def test_a_flag_has_its_shares(start: Callable[..., Tried]) -> None:
    tried = start()
    tried.audit(range(STREAM))
    profile = {"exit": FIRST, "flag": {"positive": {"flag": 0.9, "defer": 0.4}}}
    found = tried.ask(policy={"default": "p", "profiles": {"p": profile}})
    flag = found["profiles"]["p"]["after"]["live"]["flag"]
    p = np.exp(tried.stream.logits.astype(np.float64))
    p = (p / p.sum(axis=-1, keepdims=True))[..., 2]
    early, full = p[0] >= 0.9, p[-1] >= 0.9
    assert flag["flagged"] == early.mean()
    assert flag["deferred"] == ((p[0] >= 0.4) & ~early).mean()
    assert flag["missed"] == (full & ~early).sum() / full.sum()
    assert flag["false_alarms"] == (early & ~full).sum() / (~full).sum()
    assert flag["missed_interval"][0] < flag["missed"] < flag["missed_interval"][1]


def test_one_is_made_at_a_time_and_others_are_told_to_wait(
    start: Callable[..., Tried], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, begun, go_on = start(), threading.Event(), threading.Event()
    made = predicted.exits_of

    def slow(*args: Any) -> Any:
        begun.set()
        go_on.wait()
        return made(*args)

    monkeypatch.setattr(predicted, "exits_of", slow)
    body = {"policy": {"default": NEVER}}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(tried.ask, **body)
        begun.wait()
        try:
            problem = tried.refused(**body)
        finally:
            go_on.set()
        assert (problem.status, problem.code) == (429, "overloaded")
        assert first.result()["version"] == 1
    assert tried.ask(**body)["version"] == 1


def test_one_that_takes_too_long_says_what_it_has_not_tried(
    start: Callable[..., Tried], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = start()
    tried.audit(range(10))
    monkeypatch.setattr(exit_trial, "MOST_S", -1.0)
    live = tried.ask(policy={"default": LOOSE})["profiles"]["default"]["after"]["live"]
    assert live == {"texts": 0, "problem": "not tried: the exits before it took -1 s"}


def test_replicas_together_find_what_one_would_find_on_all_texts(
    start: Callable[..., Tried],
) -> None:
    tried = start()
    policy = '{"default": {"rule": "entropy", "threshold": 0.6}}'
    parts = []
    for rows in (range(130), range(130, 150), range(150, 150)):
        tried.classifier.audits.log = AuditLog()
        tried.audit(rows)
        parts.append(predicted.on_audits_here(tried.classifier, policy))
    tried.audit(range(150))
    whole = predicted.OnAudits.sum([predicted.on_audits_here(tried.classifier, policy)])
    together = predicted.OnAudits.sum(parts)
    assert together.texts == whole.texts == 150
    for place, (own, every) in whole.found.items():
        assert together.found[place][0] == pytest.approx(own)
        assert together.found[place][1] == pytest.approx(every)
