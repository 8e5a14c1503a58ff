"""The reference curve as a file that ELUE's score is reckoned from."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from models.experiments.reference_curve import METRICS, REFERENCE
from models.experiments.run import Run
from models.quality.costs import LAYERS, MFLOPS, RowCost, layer_costs
from models.quality.recorded import Recorded
from serve.bundle.loader import sha256_of
from serve.rules.traits import Traits
from tests.support.recordings import said

ROWS = 200


def recorded(run: Run) -> Recorded:
    """Return answers that are the better the deeper the model is."""
    depth, draw = int(run.options[1]), np.random.default_rng(run.seed)
    if run.data == "stsb":
        gold = draw.uniform(0, 5, ROWS)
        noise = draw.normal(0, 3 / depth, (1, ROWS))
        return said((gold + noise)[..., None], Traits((depth,), ("score",), "regression"), gold)
    gold = draw.integers(2, size=ROWS)
    right = draw.random(ROWS) < 0.6 + depth / 20
    logits = np.eye(2)[np.where(right, gold, 1 - gold)][None]
    return said(logits, Traits((depth,), ("no", "yes")), gold)


def costs(run: Run) -> dict[str, RowCost]:
    depth = int(run.options[1])
    each = np.full((1, ROWS), 10.0 * depth)
    return {
        LAYERS: layer_costs((depth,), ROWS),
        MFLOPS: RowCost(each, np.full_like(each, 0.5)),
    }


def test_the_file_holds_every_depth_and_seed(tmp_path: Path) -> None:
    shown: list[str] = []
    one, other = tmp_path / "dev.tsv", tmp_path / "held-out.tsv"
    one.write_text("one")
    other.write_text("other")
    files = {"sst2": (one, other), "mrpc": (one,), "stsb": (other,)}
    context = SimpleNamespace(
        recorded=recorded,
        data=lambda name: files[name],
        costs=costs,
        places=SimpleNamespace(page=tmp_path / "page.md"),
        picture=lambda name, _figure, _caption: shown.append(name) or "the picture",
    )
    text = REFERENCE.write(context)  # type: ignore[arg-type]
    assert shown == ["reference-curve"]
    assert text.endswith("the picture")
    stored = json.loads((tmp_path / "reference/minilm-elue.json").read_text())
    assert len(REFERENCE.runs) == 6 * 3 * len(METRICS)
    texts = {model["data"]["task"]: model["data"]["sha256"] for model in stored["models"]}
    assert (texts["mrpc"], texts["stsb"]) == (sha256_of(one), sha256_of(other))
    assert len(set(texts.values())) == 3, "two files together are other texts than either"
    points = [
        point
        for model in stored["models"]
        if model["data"]["task"] == "mrpc"
        for point in model["rules"]["families"]["static"]
        if point["costs"]["layers"] == 3
    ]
    values = [point["metrics"]["accuracy_and_f1"] for point in points]
    assert len(values) == 3
    assert [point["costs"]["mflops"] for point in points] == [30.5] * 3
