"""ALBERT on its whole way: trained, exported, served over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import AlbertConfig

from export import bundle as bundles
from models.data.notes import DataNote
from models.encoders.families import build_encoder
from models.multi_exit import MultiExitModel
from models.training.job import ModelChoice, TrainConfig, TrainJob
from models.training.train import train
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.support.tiny import MAX_TOKENS, SPECIAL, WORDS, tiny_tokenizer
from tests.support.wordpiece import save_tokenizer


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny ALBERT, trained on the command's own way from an encoder folder."""
    folder = tmp_path_factory.mktemp("albert")
    torch.manual_seed(0)
    config = AlbertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=MAX_TOKENS,
        initializer_range=0.2,
    )
    build_encoder(config).save_pretrained(folder / "encoder")
    save_tokenizer(tiny_tokenizer(), folder / "encoder")
    lines = [f"{i % 2}\t{'w1' if i % 2 else 'w2'} w{10 + i} w{50 + i % 7}" for i in range(64)]
    data = folder / "data.tsv"
    data.write_text("\n".join(["label\ttext_a", *lines]) + "\n")
    choice = ModelChoice(encoder=folder / "encoder", labels=("no", "yes"), max_tokens=32)
    config = TrainConfig(epochs=6, lr=3e-3, batch_size=16)
    out = folder / "model"
    with pytest.warns(DataNote, match="holds no classifier"):
        assert train(TrainJob(choice, config, data, data, out), Console(quiet=True))
    return out


@pytest.fixture(scope="module", params=["fp32", "int8"])
def server(trained: Path, request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    """Return a server of the trained model."""
    out = trained.parent / request.param
    bundles.write(bundles.plan(trained, (request.param,)), out)
    with serving_bundles(out, precision=request.param) as server:
        yield server


def test_what_was_trained_is_what_is_served(trained: Path, server: LiveServer) -> None:
    texts = [f"w{1 + i % 2} w{20 + i}" for i in range(12)]
    tokens = torch.tensor([tiny_tokenizer().encode(text).ids for text in texts])
    with torch.no_grad():
        heads = MultiExitModel.load(trained)(tokens, torch.ones_like(tokens))
    for layer, logits in enumerate(heads, start=1):
        answer = server.answer(texts, exit={"rule": "layer", "layer": layer})
        expected = logits.softmax(-1)[:, 1].numpy()
        found = [result["scores"]["yes"] for result in answer["results"]]
        np.testing.assert_allclose(found, expected, atol=0.05)
        assert {result["exit"]["layer"] for result in answer["results"]} == {layer}
    labels = [result["label"] for result in answer["results"]]
    assert labels == ["yes", "no"] * 6, "it has learned"
