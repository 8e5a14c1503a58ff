"""Checkpoints of the literature, from their own files to HTTP, against their own inference code.

Every text, under every setting, must get the original's label, logits and exit layer; texts and
settings all run at once, so rows of different rules share batches. The systems' other encoders are
those of `tests/models/checkpoints/test_formats.py`.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from export import bundle as bundles
from serve.bundle.manifest import Manifest
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.support.originals.elasticbert import ElasticBert
from tests.support.originals.fastbert import FastBert
from tests.support.originals.highway import Berxit, DeeBert
from tests.support.originals.pabee import Pabee, PabeeAlbert, PceeAlbert
from tests.support.originals.system import Answer, Row, System
from tests.support.originals.transformer import entropy

Rule = dict[str, Any]


class Setting(NamedTuple):
    """A rule as Offramp is asked for it, and the original's answer under the same setting."""

    rule: Rule
    answer: Callable[[Row], Answer]


class Case(NamedTuple):
    """A system, and settings from never leaving to leaving at once."""

    system: System
    settings: list[Setting]
    last_ramp: bool = False


def between(values: Iterable[float]) -> list[float]:
    """Return thresholds between the values, each as far from both as can be."""
    ordered = sorted(set(values))
    places = np.linspace(0, len(ordered) - 2, 6).astype(int)
    return [0.0, *((ordered[i] + ordered[i + 1]) / 2 for i in places)]


def thresholds(
    rule: str, values: Iterable[float], answer: Callable[..., Answer], name: str
) -> list[Setting]:
    """Return settings of a rule that only has a threshold."""
    return [
        Setting({"rule": rule, "threshold": t}, partial(answer, **{name: t}))
        for t in between(values)
    ]


def entropies_of(system: Any) -> list[float]:
    return [entropy(said) for row in system.rows() for said in system.logits(row)]


def by_entropy(kind: type[Any], last_ramp: bool = False) -> Case:
    system = kind()
    # DeeBERT as Offramp serves it, without the last ramp, unless that is asked for.
    answer = system.answer if last_ramp or kind is ElasticBert else system.answer_without_last_ramp
    settings = thresholds("entropy", entropies_of(system), answer, "threshold")
    return Case(system, settings, last_ramp)


def by_predicted_error() -> Case:
    system = Berxit(divide=1)
    values = [
        system.uncertainty(i, x)
        for row in system.rows()
        for i, x in enumerate(system.hidden_states(row)[:-1])
    ]
    return Case(system, thresholds("learned", values, system.answer, "threshold"))


def by_patience() -> Case:
    system = Pabee()
    settings = [
        Setting({"rule": "patience", "patience": p}, partial(system.answer, patience=p))
        for p in range(1, system.depth + 1)
    ]
    return Case(system, [*settings, Setting({"rule": "never"}, partial(system.answer, patience=0))])


def by_patience_with_a_value() -> Case:
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


def by_confident_patience() -> Case:
    stated = {"ee_mechanism": "V1", "exiting_threshold": 0.7, "do_ensemble": 1}
    system = PceeAlbert(**stated, weights_schema="asc")
    shares = [h / math.log(system.num_labels) for h in entropies_of(system)]
    settings = [
        Setting(
            {"rule": "confident_patience", "threshold": t, "patience": p, "ensemble": name},
            partial(system.answer, patience=p, threshold=t, ensemble=number),
        )
        for number, name in enumerate(["none", "run", "all"])
        for p in (1, 2)
        for t in between(shares)[::2]
    ]
    return Case(system, settings)


def by_speed() -> Case:
    system = FastBert()
    shares = [h / math.log(system.num_labels) for h in entropies_of(system)]
    return Case(system, thresholds("normalized_entropy", shares, system.answer, "speed"))


CASES: dict[str, Callable[[], Case]] = {
    "DeeBERT": partial(by_entropy, DeeBert),
    "DeeBERT with the last ramp": partial(by_entropy, DeeBert, last_ramp=True),
    "BERxiT": by_predicted_error,
    "PABEE": by_patience,
    "PABEE on ALBERT, a regression": by_patience_with_a_value,
    "PCEE-BERT on ALBERT": by_confident_patience,
    "ElasticBERT": partial(by_entropy, ElasticBert),
    "FastBERT": by_speed,
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
    manifest = bundles.write(bundles.plan(folder, ("fp32",), last_ramp=case.last_ramp), out)
    with serving_bundles(out) as server:
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
    assert case.system.depth in layers
    assert min(layers) < case.system.depth, "the settings let rows leave early and late"


def test_the_manifest_names_the_system(served: Served, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["served"]
    assert served.manifest.trained_for.method is not None
    assert name.startswith(served.manifest.trained_for.method)
    assert served.manifest.policy.wish_for(None).rule == "never", "until the operator decides"


def _as_input(system: System, row: Row) -> dict[str, list[int]]:
    given = {"input_ids": row.ids}
    return given | {"token_type_ids": row.types} if system.has_types else given


def _logits(result: dict[str, Any]) -> list[float]:
    logits = result["logits"]
    return list(logits.values()) if isinstance(logits, dict) else logits
