import json
from pathlib import Path

import pytest

from export.model_folder import max_tokens
from models.multi_exit import MultiExitModel


@pytest.mark.parametrize(("stated", "expected"), [(32, 32), (512, 64), (1e30, 64), (None, 64)])
def test_max_tokens_is_what_positions_and_tokenizer_allow(
    tmp_path: Path, model: MultiExitModel, stated: float | None, expected: int
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": stated}))
    assert max_tokens(tmp_path, model) == expected
    (tmp_path / "tokenizer_config.json").unlink()
    assert max_tokens(tmp_path, model) == 64
