"""How large batches grow on a device, and how soon threads take turns."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from serve.bundle.loader import Bundle
from serve.classifier import classifier as module
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.classifier.classify_request import ClassifyRequest
from serve.classifier.options import EngineOptions
from serve.engine.cost_model import CostModel, SegmentCost
from serve.policy.database import Database
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.placement import Device, Placement
from tests.support.tiny import DEPTH

LAUNCHES_ARE_DEAR = CostModel([SegmentCost(1e-4, 1e-7)] * DEPTH)


def start(
    bundle: Bundle, patch: pytest.MonkeyPatch, placement: Placement, options: EngineOptions
) -> tuple[Classifier, Mock]:
    """Return a model that takes itself to be on a device, and its observer."""
    chain, observer = CpuRunner(bundle, "fp32", num_threads=1), Mock()
    patch.setattr(module, "place", lambda *_: placement)
    patch.setattr(module, "build_runner", lambda *_: chain)
    patch.setattr(module, "measure", lambda *_: LAUNCHES_ARE_DEAR)
    classifier = Classifier(bundle, options, Database(), observer, ThreadPoolExecutor(1))
    classifier.policy.set_baseline(bundle.manifest.policy, "bundle")
    classifier.start()
    return classifier, observer


@pytest.mark.parametrize(
    ("device", "options", "expected"),
    [
        ("cpu", EngineOptions(), 64),
        ("cuda", EngineOptions(), 512),
        ("cuda", EngineOptions(max_batch_rows=100), 100),
        ("cpu", EngineOptions(max_batch_tokens=90), 30),
    ],
)
def test_batches_are_as_large_as_suits_the_device_unless_told_otherwise(
    bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    device: Device,
    options: EngineOptions,
    expected: int,
) -> None:
    classifier, observer = start(bundle, monkeypatch, Placement(device, "fp32"), options)
    try:
        asyncio.run(classifier.classify(Classification(ClassifyRequest(inputs=["w1"] * 600))))
    finally:
        classifier.engine.stop(0)
    assert max(call.args[0].num_rows for call in observer.batch.call_args_list) == expected


def test_the_engines_thread_does_not_wait_long_for_others(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys.setswitchinterval(5e-3)
    classifier, _ = start(bundle, monkeypatch, Placement("cpu", "fp32"), EngineOptions())
    classifier.engine.stop(0)
    assert sys.getswitchinterval() == pytest.approx(1e-4)
