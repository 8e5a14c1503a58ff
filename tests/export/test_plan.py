import json
from pathlib import Path

import pytest

from export import bundle as bundles
from export.errors import ExportFailed
from serve.bundle.recording import RECORDING
from tests.export.conftest import MakeFolder


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportFailed, match="nowhere: no such folder"):
        bundles.plan(tmp_path / "nowhere", ("fp32",))


def test_a_missing_tokenizer_is_named(make_folder: MakeFolder) -> None:
    folder = make_folder()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ExportFailed, match=r"holds no tokenizer: expected tokenizer\.json"):
        bundles.plan(folder, ("fp32",))


def test_a_folder_without_any_head_is_refused(make_folder: MakeFolder) -> None:
    folder = make_folder()
    config = json.loads((folder / "config.json").read_text())
    del config["offramp"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ExportFailed, match="no classifier that is recognised"):
        bundles.plan(folder, ("fp32",))


def test_a_model_cut_short_keeps_its_first_exits_and_no_figures(make_folder: MakeFolder) -> None:
    folder = make_folder()
    (folder / RECORDING).write_bytes(b"of the whole model")
    planned = bundles.plan(folder, ("fp32",), layers=2)
    assert planned.model.exits == (1, 2)
    assert planned.model.backbone.depth == 2
    assert not planned.whole
    assert "cut to the first 2 of 4 layers" in planned.notes


@pytest.mark.parametrize(("layers", "message"), [(0, "has 4 layers"), (5, "has 4 layers")])
def test_more_layers_than_there_are_cannot_be_kept(
    make_folder: MakeFolder, layers: int, message: str
) -> None:
    with pytest.raises(ExportFailed, match=f"--layers {layers}: the model {message}"):
        bundles.plan(make_folder(), ("fp32",), layers=layers)


def test_the_last_ramp_is_something_that_only_deebert_has(make_folder: MakeFolder) -> None:
    with pytest.raises(ExportFailed, match=r"--last-ramp is for DeeBERT; .* is Offramp"):
        bundles.plan(make_folder(), ("fp32",), last_ramp=True)
