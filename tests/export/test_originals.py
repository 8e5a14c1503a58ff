"""Checkpoints of the literature, from their own files to HTTP, against their own inference code.

Every text, under every setting, must get the original's label, logits and exit layer; texts and
settings all run at once, so rows of different rules share waves.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from export import bundle as bundles
from serve.classifier import EngineOptions
from serve.manifest import Manifest
from serve.standalone import build_standalone_app
from tests.originals.elasticbert import ElasticBert
from tests.originals.fastbert import FastBert
from tests.originals.highway import (
    Berxit,
    BerxitAlbert,
    BerxitDistilBert,
    DeeBert,
    DeeRoberta,
)
from tests.originals.pabee import Pabee, PabeeAlbert, Pcee, PceeAlbert
from tests.originals.system import Answer, Row, System
from tests.serve.web.live_server import LiveServer, listening

Rule = dict[str, Any]


class Setting(NamedTuple):
    """A rule as Offramp is asked for it, and the original's answer under the same setting."""

    rule: Rule
    answer: Callable[[Row], Answer]


class Case(NamedTuple):
    """A system, and settings from never leaving to leaving at once."""

    system: System
    settings: list[Setting]
    export: dict[str, Any] = {}


def entropies(system: Any, *thresholds: float) -> list[Setting]:
    return [
        Setting({"rule": "entropy", "threshold": t}, partial(system.answer, threshold=t))
        for t in thresholds
    ]


def deebert(kind: type[DeeBert]) -> Case:
    system = kind()
    settings = [
        Setting({"rule": "entropy", "threshold": t}, partial(system.mended, threshold=t))
        for t in (0.0, 0.3, 0.6, 0.9, 1.1)
    ]
    return Case(system, settings)


def berxit(kind: type[Berxit]) -> Case:
    system = kind(divide=1)
    settings = [
        Setting({"rule": "learned", "threshold": t}, partial(system.answer, threshold=t))
        for t in (0.0, 0.005, 0.2, 0.5, 0.8, 1.0)
    ]
    return Case(system, settings)


def patience(kind: type[Pabee]) -> Case:
    system = kind()
    settings = [
        Setting({"rule": "patience", "patience": p}, partial(system.answer, patience=p))
        for p in range(1, system.depth + 1)
    ]
    return Case(system, [*settings, Setting({"rule": "never"}, partial(system.answer, patience=0))])


def patient_regression() -> Case:
    system = PabeeAlbert(num_labels=1)
    settings = [
        Setting(
            {"rule": "patience", "patience": p, "tolerance": t},
            partial(system.answer, patience=p, tolerance=t),
        )
        for p in (1, 2, 3)
        for t in (0.1, 0.94, 2.0)
    ]
    return Case(system, settings)


def pcee(kind: type[Pcee]) -> Case:
    stated = {"ee_mechanism": "V1", "exiting_threshold": 0.7, "do_ensemble": 1}
    system = kind(**stated, weights_schema="asc")
    settings = [
        Setting(
            {"rule": "confident_patience", "threshold": t, "patience": p, "ensemble": name},
            partial(system.answer, patience=p, threshold=t, ensemble=number),
        )
        for number, name in enumerate(["none", "run", "all"])
        for p in (1, 2)
        for t in (0.0, 0.7, 0.95)
    ]
    return Case(system, settings)


def fastbert() -> Case:
    system = FastBert()
    settings = [
        Setting({"rule": "normalized_entropy", "threshold": s}, partial(system.answer, speed=s))
        for s in (0.0, 0.2, 0.5, 0.8, 1.0)
    ]
    return Case(system, settings)


def elasticbert() -> Case:
    system = ElasticBert()
    return Case(system, entropies(system, 0.0, 0.2, 0.5, 0.8, 1.1))


def with_the_last_ramp() -> Case:
    system = DeeBert()
    return Case(system, entropies(system, 0.3, 0.6, 0.9, 1.1), {"last_ramp": True})


CASES: dict[str, Callable[[], Case]] = {
    "DeeBERT": partial(deebert, DeeBert),
    "DeeBERT-RoBERTa": partial(deebert, DeeRoberta),
    "DeeBERT-last-ramp": with_the_last_ramp,
    "BERxiT": partial(berxit, Berxit),
    "BERxiT-ALBERT": partial(berxit, BerxitAlbert),
    "BERxiT-DistilBERT": partial(berxit, BerxitDistilBert),
    "PABEE": partial(patience, Pabee),
    "PABEE-ALBERT": partial(patience, PabeeAlbert),
    "PABEE-ALBERT-regression": patient_regression,
    "PCEE-BERT": partial(pcee, Pcee),
    "PCEE-BERT-ALBERT": partial(pcee, PceeAlbert),
    "ElasticBERT": elasticbert,
    "FastBERT": fastbert,
}


class Served(NamedTuple):
    """A case, what export wrote of it, and a server of that."""

    case: Case
    manifest: Manifest
    server: LiveServer


@pytest.fixture(scope="module", params=CASES)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Return a system that was exported from its own files and is being served."""
    case = CASES[request.param]()
    folder = case.system.save(tmp_path_factory.mktemp("original") / "checkpoint")
    out = folder.parent / "bundle"
    manifest = bundles.write(bundles.plan(folder, ("fp32",), **case.export), out)
    with listening(build_standalone_app([out], EngineOptions(precision="fp32", num_threads=1))) as server:
        yield Served(case, manifest, server)


def test_every_answer_is_the_originals(served: Served) -> None:
    case, rows = served.case, served.case.system.rows()
    inputs = [_as_input(case.system, row) for row in rows]
    ask = partial(served.server.answer, inputs, **{"return": ["logits"]})
    with ThreadPoolExecutor(len(case.settings)) as clients:
        answers = list(clients.map(lambda s: ask(exit=s.rule)["results"], case.settings))
    layers = set()
    for setting, results in zip(case.settings, answers, strict=True):
        for row, result in zip(rows, results, strict=True):
            expected = setting.answer(row)
            found = min(result["exit"]["layer"], case.system.depth)
            assert found == expected.exit_layer, (setting.rule, row)
            np.testing.assert_allclose(_logits(result), expected.logits.numpy(), atol=1e-4)
            if case.system.num_labels > 1:
                assert result["label"] == f"LABEL_{expected.label}"
            layers.add(expected.exit_layer)
    assert len(layers) >= case.system.depth - 1, "the settings let rows leave at many layers"


def test_the_manifest_names_the_system(served: Served, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["served"]
    assert served.manifest.trained_for.method is not None
    assert name.startswith(served.manifest.trained_for.method)
    assert served.manifest.policy.default == served.manifest.policy.rule_for(None)
    assert served.manifest.policy.rule_for(None).rule == "never"


def _as_input(system: System, row: Row) -> dict[str, list[int]]:
    given = {"input_ids": row.ids}
    return given | {"token_type_ids": row.types} if system.has_types else given


def _logits(result: dict[str, Any]) -> list[float]:
    logits = result["logits"]
    return list(logits.values()) if isinstance(logits, dict) else logits
