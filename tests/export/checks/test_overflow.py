"""Activations that fp16 cannot hold are found on a CPU, which computes fp16 in fp32."""

from pathlib import Path

import pytest
import torch

from export import bundle as bundles
from export.checks.overflow import Peak, find_peak, warning
from export.checks.samples import odd_batches
from models.multi_exit import MultiExitModel
from tests.export.conftest import MakeFolder
from tests.support.tiny import MAX_TOKENS, tiny_model

LOUD = "encoder.layer.2.intermediate.dense"


def loud_model(value: float) -> MultiExitModel:
    """Return the tiny model; one unit inside layer 3 always gives this value."""
    model = tiny_model()
    dense = model.encoder.get_submodule(LOUD)
    with torch.no_grad():
        dense.weight[0] = 0
        dense.bias[0] = value
    return model


@pytest.mark.parametrize("value", [30_000.0, 70_000.0])
def test_the_largest_activation_is_found_with_its_layer(value: float) -> None:
    peak = find_peak(loud_model(value), odd_batches(MAX_TOKENS, 200))
    assert peak.value == value
    assert peak.module.startswith("encoder.layer.2.intermediate")


def test_nan_is_larger_than_any_number() -> None:
    peak = find_peak(loud_model(float("nan")), odd_batches(MAX_TOKENS, 200))
    assert "will overflow" in str(warning(peak))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (19_999.0, None),
        (30_000.0, "layer.2 gives values up to 30,000; fp16 ends at 65,504, and other texts may"),
        (70_000.0, "layer.2 gives values up to 70,000; fp16 ends at 65,504 and will overflow"),
    ],
)
def test_the_remark_says_layer_and_figure(value: float, said: str | None) -> None:
    remark = warning(Peak(value, "layer.2"))
    assert (remark is None) if said is None else (said in str(remark))


@pytest.mark.parametrize(("precision", "noted"), [("fp16", 1), ("fp32", 0)])
def test_export_notes_it_where_fp16_is_written(
    precision: str, noted: int, make_folder: MakeFolder, tmp_path: Path
) -> None:
    folder, notes = make_folder(), list[str]()
    loud_model(30_000.0).save(folder)
    planned = bundles.plan(folder, (precision,), (4,))  # type: ignore[arg-type]
    bundles.write(planned, tmp_path / "bundle", note=notes.append)
    assert len([n for n in notes if "gives values up to 30,000" in n]) == noted
