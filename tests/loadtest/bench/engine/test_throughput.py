from dataclasses import replace
from itertools import chain

import pytest

from loadtest.bench.engine import throughput as module
from loadtest.bench.engine.throughput import throughput
from loadtest.bench.loaded_bundle import load
from serve.bundle.loader import Bundle
from tests.loadtest.bench.engine.test_suite import HURRIED

WARMING = 99.0


def test_each_contenders_fastest_turn_counts(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_s = [4.0, 6.0, 4.5]
    uniform_s, early_s = [3.0, 2.0, 5.0], [1.5, 1.9, 1.0]
    ours = chain([WARMING, WARMING], *zip(uniform_s, early_s, strict=True))
    whole = chain([0.1], whole_s)
    monkeypatch.setattr(module, "_whole_model_s", lambda *_: next(whole))
    monkeypatch.setattr(module, "_ours_s", lambda *_: next(ours))
    loaded = load(bundle, "fp32", num_threads=1)
    bars = throughput(loaded, replace(HURRIED, rounds=3), lambda step: None)
    assert [bar.value for bar in bars] == [2.0, 4.0]
