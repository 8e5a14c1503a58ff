"""FastBERT with UER's names and norm, attention heads, and segments counted from 1."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.support.originals.system import (
    HEADS,
    INNER,
    POSITIONS,
    WIDTH,
    WORDS,
    Answer,
    Row,
    System,
    first_exit,
)
from tests.support.originals.transformer import UER, attention, entropy, linear, norm

NARROW = 16
UNUSED = [f"[unused{i}]" for i in range(1, 100)]
VOCABULARY = ["[PAD]", *UNUSED, "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


class FastBert(System):
    """The package's file; `prefix` is empty in that of the script."""

    prefix = "kernel."
    names = UER
    weights_file = "fastbert.bin"

    def sizes(self) -> dict[str, Any]:
        return {
            "emb_size": WIDTH,
            "feedforward_size": INNER,
            "hidden_size": WIDTH,
            "heads_num": HEADS,
            "layers_num": self.depth,
            "dropout": 0.1,
            "embedding": "bert",
            "encoder": "bert",
            "pooling": "first",
        }

    def draw_backbone(self) -> None:
        place = f"{self.prefix}embedding"
        self.draw.table(f"{place}.word_embedding.weight", len(VOCABULARY), WIDTH)
        self.draw.table(f"{place}.position_embedding.weight", POSITIONS, WIDTH)
        self.draw.table(f"{place}.segment_embedding.weight", 3, WIDTH)
        self.draw.norm(f"{place}.layer_norm", WIDTH, "gamma", "beta")
        for index in range(self.depth):
            self.draw_layer(self.layer_name(index), UER)
        self.draw.linear(f"{self.prefix}target.nsp_linear_1", WIDTH, WIDTH)

    def layer_name(self, index: int) -> str:
        return f"{self.prefix}encoder.transformer.{index}"

    def draw_heads(self) -> None:
        for index in range(self.depth):
            place = f"classifiers.{index}"
            self.draw.linear(f"{place}.output_layer_0", WIDTH, NARROW)
            for part in ("linear_layers.0", "linear_layers.1", "linear_layers.2", "final_linear"):
                self.draw.linear(f"{place}.self_atten.{part}", NARROW, NARROW, spread=1.5)
            self.draw.linear(f"{place}.output_layer_1", NARROW, NARROW, spread=1.5)
            self.draw.linear(f"{place}.output_layer_2", NARROW, self.num_labels, spread=index + 1.0)
        del self.config["num_labels"]

    def embed(self, row: Row) -> Tensor:
        place = f"{self.prefix}embedding"
        x = self.state[f"{place}.word_embedding.weight"][row.ids]
        x = x + self.state[f"{place}.position_embedding.weight"][: len(row.ids)]
        x = x + self.state[f"{place}.segment_embedding.weight"][row.types]
        return norm(self.state, f"{place}.layer_norm", x, UER)

    def logits(self, row: Row) -> list[Tensor]:
        return [self._classify(i, x) for i, x in enumerate(self.hidden_states(row))]

    def _classify(self, index: int, x: Tensor) -> Tensor:
        place = f"classifiers.{index}"
        x = torch.tanh(linear(self.state, f"{place}.output_layer_0", x))
        inner = {n.replace(".self_atten.", ".self_attn."): t for n, t in self.state.items()}
        x = attention(inner, place, x, 2, UER)
        x = torch.tanh(linear(self.state, f"{place}.output_layer_1", x[0]))
        return linear(self.state, f"{place}.output_layer_2", x)

    def answer(self, row: Row, speed: float) -> Answer:
        most = math.log(self.num_labels)
        return first_exit(self.logits(row), lambda _, logits: entropy(logits) / most < speed)

    def encode(self, text: str, other: str | None = None) -> Row:
        """Encode words that are in the vocabulary, as the package and the script do."""
        ids = [101, *(VOCABULARY.index(word) for word in text.split())]
        if other is None:
            return Row(ids, [1] * len(ids))
        second = [*(VOCABULARY.index(word) for word in other.split()), 102]
        return Row([*ids, 102, *second], [1] * (len(ids) + 1) + [2] * len(second))

    def save_tokenizer(self, folder: Path) -> None:
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")

    def texts(self, count: int = 24) -> list[str]:
        generator = torch.Generator().manual_seed(1)
        lengths = torch.randint(1, 12, (count,), generator=generator).tolist()
        return [
            " ".join(WORDS[i] for i in torch.randint(0, 55, (n,), generator=generator).tolist())
            for n in lengths
        ]

    def rows(self, count: int = 24, seed: int = 1) -> list[Row]:
        return [self.encode(text) for text in self.texts(count)]
