import json
from pathlib import Path

import pytest

from export import source
from export.errors import ExportFailed
from models.multi_exit import MultiExitModel
from tests.export.conftest import MakeFolder


@pytest.mark.parametrize(("stated", "expected"), [(32, 32), (512, 64), (1e30, 64), (None, 64)])
def test_max_tokens_is_what_positions_and_tokenizer_allow(
    tmp_path: Path, model: MultiExitModel, stated: float | None, expected: int
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": stated}))
    assert source.max_tokens(tmp_path, model) == expected


def test_max_tokens_without_tokenizer_config(tmp_path: Path, model: MultiExitModel) -> None:
    assert source.max_tokens(tmp_path, model) == 64


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportFailed, match="nowhere: no such folder"):
        source.load_model(tmp_path / "nowhere")


def test_a_missing_tokenizer_is_named(make_folder: MakeFolder) -> None:
    folder = make_folder()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ExportFailed, match=r"tokenizer\.json is missing"):
        source.load_model(folder)


def test_a_folder_without_exits_is_refused(make_folder: MakeFolder) -> None:
    folder = make_folder()
    config = json.loads((folder / "config.json").read_text())
    del config["offramp"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ExportFailed, match="no multi-exit model"):
        source.load_model(folder)
