"""The longest input that a checkpoint takes."""

from pathlib import Path

from tokenizers import Tokenizer

from models.errors import UnusableCheckpoint
from models.model_files import read_json
from models.multi_exit import MultiExitModel

_TOKENIZER_CONFIG = "tokenizer_config.json"
# The second is what transformers 2 wrote; it still reads both.
_KEYS = ("model_max_length", "max_len")


def stated_limit(folder: Path) -> float | None:
    """Return the tokens that the tokenizer config allows; None if it says nothing.

    Raises:
        UnusableCheckpoint: it is no number of tokens.
    """
    settings = read_json(folder, _TOKENIZER_CONFIG)
    key = next((key for key in _KEYS if key in settings), _KEYS[0])
    stated = settings.get(key)
    if stated is not None and (type(stated) not in (int, float) or stated < 1):
        raise UnusableCheckpoint(
            f"{folder}/{_TOKENIZER_CONFIG}: {key} is {stated!r}; expected a number of tokens"
        )
    return stated


def max_tokens(folder: Path, model: MultiExitModel, tokenizer: Tokenizer) -> int:
    """Return the longest input that both the model's positions and the tokenizer config allow.

    The truncation length in `tokenizer.json` is ignored: it is a setting of an earlier call.
    """
    positions, stated = model.backbone.max_tokens, stated_limit(folder)
    # transformers writes 1e30 for "no limit".
    limit = positions if stated is None else int(min(positions, stated))
    special = tokenizer.num_special_tokens_to_add(False)
    if limit <= special:
        raise UnusableCheckpoint(
            f"{folder}: an input may have {limit} tokens, and the tokenizer puts {special} around "
            f"a text; see {_KEYS[0]} in {_TOKENIZER_CONFIG}"
        )
    return limit
