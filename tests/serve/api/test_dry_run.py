"""Trying a change of a policy: what it would do, on recorded texts and on audited ones."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models.recorded import BundleSource, Recorded, recorded
from serve.audits.counts import Compared
from serve.audits.record import AuditLog, AuditRecord, RowLogits
from serve.bundle.loader import load_bundle
from serve.classifier.classifier import Classifier
from serve.config import ServerConfig
from serve.http.standalone import standalone_context
from serve.rules.traits import Task
from serve.runtime.placement import Placement
from serve.tokenization.length_bounds import Text
from tests.serve.support.live_server import LiveServer, Problem, serving
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
            self.classifier.audits.log.add(audit([self.row(row)], profile))  # type: ignore[attr-defined]

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


def audit(rows: list[RowLogits], profile: str = "default") -> AuditRecord:
    return AuditRecord(
        time_s=0.0,
        version=1,
        profile=profile,
        rule="{}",
        target=None,
        promise=None,
        exit_index=2,
        early=False,
        deadline=False,
        num_tokens=5,
        compared=Compared(False),
        rows=tuple(rows),
    )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Tried]]:
    """Start a server with a model of a task, exits after layers 1, 2 and 4, and a stream."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(task: Task = "single_label") -> Tried:
            folder = write_task_bundle(tmp_path, Kind(task), alike=True)
            draw = np.random.default_rng(1)
            texts = [" ".join(draw.choice(WORDS, draw.integers(1, 12))) for _ in range(STREAM)]
            source = BundleSource(load_bundle(folder), Placement("cpu", "fp32"))
            stream = recorded(source, [Text(text) for text in texts])
            config = ServerConfig(bundles=[str(folder)], precision="fp32", num_threads=1)
            context = standalone_context(config)
            (classifier,) = context.catalog
            classifier.audits = SimpleNamespace(log=AuditLog())  # type: ignore[attr-defined]
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
def test_what_then_happens_lies_within_what_was_predicted(
    start: Callable[..., Tried], task: Task
) -> None:
    tried = start(task)
    tried.audit(range(0, STREAM, 2))
    predictions = [
        tried.ask(policy={"default": exit_})["profiles"]["default"]["after"]["live"]
        for exit_ in (LOOSE, PATIENT, FIRST)
    ]
    full = answered(tried, NEVER)
    moved = False
    for exit_, predicted_ in zip((LOOSE, PATIENT, FIRST), predictions, strict=True):
        found = answered(tried, exit_)
        layers = np.mean([layer for _, layer in found])
        differ = np.mean([a[0] != b[0] for a, b in zip(found, full, strict=True)])
        low, high = predicted_["layers_interval"]
        assert low <= layers <= high
        low, high = predicted_["interval"]
        assert low <= differ <= high
        assert (predicted_["texts"], predicted_["of"]) == (STREAM // 2, "profile")
        moved |= differ > 0
    assert moved, "some policy answers otherwise than full depth"


@pytest.mark.parametrize("task", [task for task in LABELS if task != "regression"])
def test_audits_of_all_texts_predict_exactly_what_happens(
    start: Callable[..., Tried], task: Task
) -> None:
    tried = start(task)
    tried.audit(range(STREAM))
    live = tried.ask(policy={"default": LOOSE})["profiles"]["default"]["after"]["live"]
    full, found = answered(tried, NEVER), answered(tried, LOOSE)
    differ = sum(a[0] != b[0] for a, b in zip(found, full, strict=True))
    assert live["disagreement"] == differ / STREAM
    assert live["layers"] == pytest.approx(np.mean([layer for _, layer in found]), 1e-12)
