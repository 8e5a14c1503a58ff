"""The longest input that a checkpoint takes."""

from pathlib import Path

from models.errors import UnusableCheckpoint
from models.model_files import read_json
from models.multi_exit import MultiExitModel

_TOKENIZER_CONFIG = "tokenizer_config.json"


def max_tokens(folder: Path, model: MultiExitModel) -> int:
    """Return the longest input that both the model's positions and the tokenizer config allow.

    The truncation length in `tokenizer.json` is ignored: it is a setting of an earlier call.
    """
    positions = model.backbone.max_tokens
    stated = read_json(folder, _TOKENIZER_CONFIG).get("model_max_length")
    if stated is None:
        return positions
    if type(stated) not in (int, float) or stated < 1:
        raise UnusableCheckpoint(
            f"{folder}/{_TOKENIZER_CONFIG}: model_max_length is {stated!r}; expected a number of "
            "tokens"
        )
    # transformers writes 1e30 for "no limit".
    return int(min(positions, stated))
