"""A model with random weights, and its bundle."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from loadtest.bench.engine.settings import ModelSettings
from loadtest.bench.errors import BenchFailed

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
# In a process of its own, so that PyTorch's memory and threads are not in the one that measures.
# `offramp export` would need typer and rich, which a bare GPU host lacks.
_BUILD = """
import json, os, sys
from pathlib import Path
from export.bundle import plan, write
from loadtest.bench.engine import random_model
from loadtest.bench.engine.settings import ModelSettings
settings, precisions = json.loads(sys.argv[1])
model, bundle = map(Path, sys.argv[2:])
random_model.write(ModelSettings(**settings), model)
write(plan(model, precisions), bundle)
os._exit(0)  # the libraries have been seen to crash while Python ends
"""


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


def build(settings: ModelSettings, precisions: Sequence[str], folder: Path) -> None:
    """Write a bundle of such a model.

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
