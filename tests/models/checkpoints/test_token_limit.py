import json
from pathlib import Path

import pytest

from models.checkpoints.token_limit import max_tokens
from tests.support.tiny import tiny_model, tiny_tokenizer


@pytest.mark.parametrize(("stated", "expected"), [(32, 32), (512, 64), (1e30, 64), (None, 64)])
def test_max_tokens_is_what_positions_and_tokenizer_allow(
    tmp_path: Path, stated: float | None, expected: int
) -> None:
    model = tiny_model()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": stated}))
    assert max_tokens(tmp_path, model, tiny_tokenizer()) == expected
    (tmp_path / "tokenizer_config.json").unlink()
    assert max_tokens(tmp_path, model, tiny_tokenizer()) == 64
