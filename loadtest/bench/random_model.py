"""A model with random weights, and its bundle."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from loadtest.bench.engine_driver import BenchFailed
from serve.bundle.loader import Bundle, load_bundle

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
# In a process of its own, so that PyTorch's memory and threads are not in the one that measures.
# `offramp export` would need typer and rich, which a bare GPU host lacks.
_BUILD = """
import json, os, sys
from pathlib import Path
from export.bundle import plan, write
from loadtest.bench import random_model
settings, precisions = json.loads(sys.argv[1])
model, bundle = map(Path, sys.argv[2:])
random_model.write(random_model.ModelSettings(**settings), model)
write(plan(model, precisions), bundle)
os._exit(0)  # the libraries have been seen to crash while Python ends
"""


@dataclass(frozen=True)
class ModelSettings:
    """A BERT with random weights and an exit head after every layer."""

    name: str = "bert-base"
    layers: int = 12
    width: int = 768  # of hidden states; the inner layer is four times as wide
    heads: int = 12
    vocabulary: int = 30_522  # word pieces
    max_tokens: int = 512
    # Whether each exit has a tanh pooler of its own. For one short text, time is spent reading
    # weights, and a pooler has 8 % of a layer's weights.
    pooler: bool = False
    pooling: Literal["first", "mean"] = "first"  # of a head: a text's first token, or the mean


BERT_BASE = ModelSettings()


def write(settings: ModelSettings, folder: Path) -> None:
    """Write weights, config and tokenizer.

    A head is a linear layer, behind a tanh pooler if the settings ask for one.
    """
    import torch
    from transformers import BertConfig, BertModel

    from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel

    torch.manual_seed(0)
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


def build(settings: ModelSettings, precisions: Sequence[str], folder: Path) -> Bundle:
    """Write a bundle of such a model and return it.

    Raises:
        BenchFailed: it could not be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as model:
        wanted = json.dumps([asdict(settings), list(precisions)])
        command = [sys.executable, "-c", _BUILD, wanted, model, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip()[-2000:] or f"its process ended with {done.returncode}"
        raise BenchFailed(f"the model cannot be made:\n{said}")
    return load_bundle(folder)
