import json
from pathlib import Path

import pytest

from models.checkpoints import UnusableCheckpoint
from models.checkpoints.token_limit import max_tokens
from tests.support.tiny import tiny_model, tiny_tokenizer


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, 64),
        ({"model_max_length": None}, 64),
        ({"model_max_length": 32}, 32),
        ({"model_max_length": 512}, 64),
        ({"model_max_length": 1e30}, 64),
        # The key of old versions counts where the new one is missing.
        ({"max_len": 16}, 16),
        ({"max_len": 16, "model_max_length": 32}, 32),
    ],
    ids=str,
)
def test_max_tokens_is_what_positions_and_tokenizer_allow(
    tmp_path: Path, stated: dict[str, float | None], expected: int
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(stated))
    assert max_tokens(tmp_path, tiny_model(), tiny_tokenizer()) == expected


def test_a_text_has_room_between_the_special_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 2}')
    with pytest.raises(UnusableCheckpoint, match="may have 2 tokens, and the tokenizer puts 2"):
        max_tokens(tmp_path, tiny_model(), tiny_tokenizer())
