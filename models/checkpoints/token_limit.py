"""The longest input that a checkpoint takes."""

import json
from pathlib import Path

from models.multi_exit import MultiExitModel

_TOKENIZER_CONFIG = "tokenizer_config.json"


def max_tokens(folder: Path, model: MultiExitModel) -> int:
    """Return the longest input that both the model's positions and the tokenizer config allow.

    The truncation length in `tokenizer.json` is ignored: it is a setting of an earlier call.
    """
    positions = model.backbone.max_tokens
    path = folder / _TOKENIZER_CONFIG
    stated = json.loads(path.read_bytes()).get("model_max_length") if path.is_file() else None
    # transformers writes 1e30 for "no limit".
    return int(min(positions, stated or positions))
