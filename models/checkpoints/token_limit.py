"""The longest input that a checkpoint takes."""

from pathlib import Path

from tokenizers import Tokenizer

from models.errors import UnusableCheckpoint
from models.model_files import read_json
from models.multi_exit import MultiExitModel

_TOKENIZER_CONFIG = "tokenizer_config.json"
# The second is what transformers 2 wrote; it still reads both.
_KEYS = ("model_max_length", "max_len")


def max_tokens(folder: Path, model: MultiExitModel, tokenizer: Tokenizer) -> int:
    """Return the longest input that both the model's positions and the tokenizer config allow.

    The truncation length in `tokenizer.json` is ignored: it is a setting of an earlier call.
    """
    positions = model.backbone.max_tokens
    settings = read_json(folder, _TOKENIZER_CONFIG)
    key = next((key for key in _KEYS if key in settings), None)
    stated = settings[key] if key else None
    if stated is None:
        return positions
    least = tokenizer.num_special_tokens_to_add(False) + 1
    if type(stated) not in (int, float) or stated < least:
        raise UnusableCheckpoint(
            f"{folder}/{_TOKENIZER_CONFIG}: {key} is {stated!r}; expected a number of tokens, at "
            f"least {least}: a token between the special ones"
        )
    # transformers writes 1e30 for "no limit".
    return int(min(positions, stated))
