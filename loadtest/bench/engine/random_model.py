"""Write a model with random weights, ready for `offramp export`.

This runs as a process (`python -m loadtest.bench.engine.random_model FOLDER SETTINGS`), so that
PyTorch's memory and threads are not in the process that measures.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from loadtest.bench.engine.settings import ModelSettings

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def write(settings: ModelSettings, folder: Path) -> None:
    """Write weights, config and tokenizer.

    A head is a linear layer, behind a tanh pooler if the settings ask for one.
    """
    import torch
    from transformers import BertConfig, BertModel

    from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel

    torch.manual_seed(settings.seed)
    config = BertConfig(
        vocab_size=settings.vocabulary,
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=4 * settings.width,
        max_position_embeddings=settings.max_tokens,
        attn_implementation="sdpa",  # type: ignore[call-arg]  # a setting of the base class
    )
    head = HeadConfig(pooling=settings.pooling, pooler=settings.pooler)
    exits = ExitConfig(exits=tuple(range(1, settings.layers + 1)), head=head)
    MultiExitModel(BertModel(config, add_pooling_layer=False), exits).save(folder)
    word_pieces(settings.vocabulary).save(str(folder / "tokenizer.json"))


def word_pieces(size: int) -> Tokenizer:
    """Return a WordPiece tokenizer with `size` entries of made-up words."""
    words = (f"w{i}" for i in range(size - len(_SPECIAL)))
    vocabulary = {word: i for i, word in enumerate((*_SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def arguments(settings: ModelSettings, folder: Path) -> list[str]:
    """Return the command that writes the model in a process of its own."""
    return [sys.executable, "-m", __name__, str(folder), json.dumps(asdict(settings))]


if __name__ == "__main__":
    write(ModelSettings(**json.loads(sys.argv[2])), Path(sys.argv[1]))
