import json
from pathlib import Path

import pytest

from models.checkpoints import UnusableCheckpoint
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


def test_the_key_of_old_versions_counts_where_the_new_one_is_missing(tmp_path: Path) -> None:
    config = tmp_path / "tokenizer_config.json"
    for stated, expected in (({"max_len": 16}, 16), ({"max_len": 16, "model_max_length": 32}, 32)):
        config.write_text(json.dumps(stated))
        assert max_tokens(tmp_path, tiny_model(), tiny_tokenizer()) == expected


def test_a_text_has_room_between_the_special_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 2}')
    with pytest.raises(UnusableCheckpoint, match="may have 2 tokens, and the tokenizer puts 2"):
        max_tokens(tmp_path, tiny_model(), tiny_tokenizer())
