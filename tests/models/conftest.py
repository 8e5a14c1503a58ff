"""Tiny models, tokenizers and data files, and the commands that use them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel
from typer.testing import CliRunner, Result

from models import cli
from models.data.batches import collate
from models.data.encoding import EncodedRow
from models.elue.cli import elue
from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel, Pooling
from models.prediction.cli import predict
from models.pretraining.cli import pretrain
from models.quality.cli import calibrate, recommend
from models.quality.recorded import Recorded
from models.training import cli as training
from serve.errors import OfframpError
from serve.rules.traits import Task
from tests.support.recordings import said
from tests.support.tiny import write_tiny_model
from tests.support.wordpiece import SPECIAL, TAKEN_AS_IT_IS, wordpiece

WORDS = ["good", "fine", "nice", "bad", "dull", "poor", "the", "film", "is", "very"]
DEPTH = 3


def tiny_config(labels: Sequence[str] = ("negative", "positive")) -> BertConfig:
    """Three layers of width 32."""
    return BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=32,
        num_hidden_layers=DEPTH,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=32,
        num_labels=len(labels),
        id2label=dict(enumerate(labels)),
        attn_implementation="sdpa",
    )


def tiny_tokenizer() -> Tokenizer:
    """A WordPiece tokenizer over fourteen words."""
    return wordpiece(WORDS)


def said_of(model: MultiExitModel, rows: Sequence[EncodedRow]) -> Recorded:
    """Return what a model's exits say of rows that have been encoded already."""
    batch = collate(rows, 0)
    model.eval()
    with torch.inference_mode():
        logits = torch.stack(model(batch.input_ids, batch.attention_mask, batch.token_type_ids))
    return said(logits.numpy(), model.traits, batch.labels.numpy())


def offramp(command: str, *arguments: object, **options: object) -> Result:
    """Run a command; an option `max_tokens` is given as `--max-tokens`."""
    app = typer.Typer()
    commands = (training.train, predict, pretrain, calibrate, recommend)
    for each in (cli.evaluate, cli.inspect, *commands):
        app.command()(each)
    app.add_typer(elue, name="elue")
    pairs = [(f"--{name.replace('_', '-')}", value) for name, value in options.items()]
    words = [command, *arguments, *(part for pair in pairs for part in pair)]
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "250"})


def refusal(result: Result) -> str:
    """Return the message of an expected error, which `offramp` prints without a traceback."""
    assert isinstance(result.exception, OfframpError), result.output
    return str(result.exception)


@pytest.fixture
def make_model() -> Callable[..., MultiExitModel]:
    """Return a factory of random multi-exit models in evaluation mode."""

    def make(
        exits: tuple[int, ...] = (1, 2, 3),
        pooling: Pooling = "mean",
        seed: int = 0,
        task: Task = "single_label",
        labels: Sequence[str] = ("negative", "positive"),
        **head: Any,
    ) -> MultiExitModel:
        torch.manual_seed(seed)
        encoder = BertModel(tiny_config(labels), add_pooling_layer=False)
        shape = HeadConfig(pooling="tokens" if task == "token" else pooling, **head)
        return MultiExitModel(encoder, ExitConfig(exits=exits, task=task, head=shape)).eval()

    return make


@pytest.fixture
def make_encoder(tmp_path: Path) -> Callable[[], Path]:
    """Return a factory of encoder folders with a tokenizer that asks for padding."""

    def make() -> Path:
        torch.manual_seed(0)
        folder = tmp_path / "encoder"
        BertModel(tiny_config(), add_pooling_layer=False).save_pretrained(folder)
        tokenizer = tiny_tokenizer()
        tokenizer.enable_padding(length=16)
        tokenizer.enable_truncation(3)
        tokenizer.save(str(folder / "tokenizer.json"))
        config = {**TAKEN_AS_IT_IS, "name_or_path": "somewhere"}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder

    return make


@pytest.fixture
def make_rows() -> Callable[..., list[EncodedRow]]:
    """Return a factory of encoded rows of different lengths; the label hangs on one word."""

    def make(num_rows: int = 24, seed: int = 0) -> list[EncodedRow]:
        generator = torch.Generator().manual_seed(seed)
        rows = []
        for i in range(num_rows):
            label = i % 2
            length = int(torch.randint(1, 7, (1,), generator=generator))
            filler = torch.randint(10, 14, (length,), generator=generator).tolist()
            ids = [2, 4 + 3 * (1 - label), *filler, 3]
            rows.append(EncodedRow(ids, [0] * len(ids), label))
        return rows

    return make


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """Return a folder of the tiny model, as `offramp train` leaves it."""
    quick = {"profiles": {"quick": {"rule": "layer", "layer": 2}}}
    return write_tiny_model(tmp_path / "model", policy=json.dumps(quick))


@pytest.fixture
def write_data(tmp_path: Path) -> Callable[..., Path]:
    """Return a factory of data files; lines are written as given."""

    def write(name: str, lines: Sequence[str], labels: Sequence[str] | None = None) -> Path:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        if labels:
            (folder / "labels.json").write_text(json.dumps({"labels": labels}))
        return path

    return write


@pytest.fixture
def sentiment_lines() -> list[str]:
    """A small learnable data set as TSV lines, header included."""
    texts = [(1, "good"), (0, "bad"), (1, "fine"), (0, "dull"), (1, "nice"), (0, "poor")]
    rows = [
        f"{label}\tthe film is {'very ' * (i % 3)}{word}" for i in range(4) for label, word in texts
    ]
    return ["label\ttext_a", *rows]


@pytest.fixture
def train(
    make_encoder: Callable[[], Path],
    write_data: Callable[..., Path],
    sentiment_lines: list[str],
    tmp_path: Path,
) -> Callable[..., Result]:
    """Return a function that runs `offramp train` on tiny files; options may be changed."""
    options: dict[str, object] = {
        "encoder": make_encoder(),
        "train": write_data("train.tsv", sentiment_lines, labels=["negative", "positive"]),
        "dev": write_data("dev.tsv", sentiment_lines),
        "out": tmp_path / "out",
        "epochs": 1,
        "lr": 1e-3,
        "batch_size": 8,
        "max_tokens": 32,
    }
    return lambda *flags, **changed: offramp("train", *flags, **(options | changed))
