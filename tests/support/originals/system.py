"""The common part of the original systems: a backbone's weights, its files, and answers."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from tests.support.originals.transformer import (
    ALBERT,
    BERT,
    DISTILBERT,
    Names,
    embed,
    layer,
    linear,
    norm,
)
from tests.support.originals.weights import Draw, State

WIDTH, INNER, HEADS, POSITIONS = 32, 48, 4, 40
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(55)]


class Answer(NamedTuple):
    """The original's answer to one text."""

    label: int
    logits: Tensor  # (labels,)
    exit_layer: int


def first_exit(logits: Sequence[Tensor], may_leave: Callable[[int, Tensor], bool]) -> Answer:
    """Return the answer of the first exit at which the text may leave, else of the last."""
    for index, each in enumerate(logits):
        if may_leave(index, each):
            break
    return Answer(int(each.argmax()), each, index + 1)


class Row(NamedTuple):
    """One text as ids; types only where the system has them."""

    ids: list[int]
    types: list[int]


class System:
    """A checkpoint with its original's inference code.

    Attributes:
        config: written to `config.json` as it is.
        state: written to `pytorch_model.bin`.
    """

    prefix = "bert"
    layers = "encoder.layer"
    depth = 3
    epsilon = 1e-12
    names = BERT
    vocabulary, positions, types = len(SPECIAL) + len(WORDS), POSITIONS, 2
    has_types = True
    weights_file = "pytorch_model.bin"

    def __init__(self, num_labels: int = 3, seed: int = 0, **config: Any) -> None:
        self.num_labels = num_labels
        self.draw = Draw(seed)
        self._seen: dict[tuple[int, ...], list[Tensor]] = {}
        self.config = self.sizes() | {"num_labels": num_labels} | config
        self.draw_backbone()
        self.draw_heads()

    @property
    def state(self) -> State:
        return self.draw.state

    def sizes(self) -> dict[str, Any]:
        """Return the part of `config.json` that describes the encoder."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": WIDTH,
            "num_hidden_layers": self.depth,
            "num_attention_heads": HEADS,
            "intermediate_size": INNER,
            "max_position_embeddings": POSITIONS,
            "type_vocab_size": 2,
            "hidden_act": "gelu",
            "layer_norm_eps": self.epsilon,
        }

    def draw_backbone(self) -> None:
        place = f"{self.prefix}.embeddings"
        self.draw_embeddings(place, self.vocabulary, self.positions, self.types)
        for index in range(self.depth):
            self.draw_layer(self.layer_name(index), self.names)

    def layer_name(self, index: int) -> str:
        """Return the name of a layer."""
        return f"{self.prefix}.{self.layers}.{index}"

    def draw_embeddings(
        self, place: str, vocabulary: int, positions: int, types: int, width: int = WIDTH
    ) -> None:
        self.draw.table(f"{place}.word_embeddings.weight", vocabulary, width)
        self.draw.table(f"{place}.position_embeddings.weight", positions, width)
        if types:
            self.draw.table(f"{place}.token_type_embeddings.weight", types, width)
        self.draw.norm(f"{place}.LayerNorm", width)

    def draw_layer(self, place: str, names: Names) -> None:
        for name in (names.query, names.key, names.value, names.merge):
            self.draw.linear(f"{place}.{name}", WIDTH, WIDTH)
        self.draw.linear(f"{place}.{names.up}", WIDTH, INNER)
        self.draw.linear(f"{place}.{names.down}", INNER, WIDTH)
        for name in (names.norm_1, names.norm_2):
            self.draw.norm(f"{place}.{name}", WIDTH, names.gain, names.shift)

    def draw_heads(self) -> None:
        raise NotImplementedError

    def hidden_states(self, row: Row) -> list[Tensor]:
        """Return (tokens, width) after each layer; each text is run once."""
        key = (*row.ids, *row.types)
        if key not in self._seen:
            self._seen[key] = self.run_layers(row)
        return self._seen[key]

    def run_layers(self, row: Row) -> list[Tensor]:
        names = replace(self.names, epsilon=self.epsilon)
        x, found = self.embed(row), []
        for index in range(self.depth):
            x = layer(self.state, self.layer_name(index), x, HEADS, names)
            found.append(x)
        return found

    def embed(self, row: Row) -> Tensor:
        x = embed(
            self.state, f"{self.prefix}.embeddings", row.ids, row.types if self.types else None
        )
        return self.norm_embeddings(x)

    def norm_embeddings(self, x: Tensor) -> Tensor:
        names = replace(BERT, epsilon=self.epsilon)
        return norm(self.state, f"{self.prefix}.embeddings.LayerNorm", x, names)

    def without(self, *parts: str) -> Self:
        """Remove all weights whose names contain one of the parts."""
        for name in [name for name in self.state if any(part in name for part in parts)]:
            del self.state[name]
        return self

    def save(self, folder: Path) -> Path:
        """Write the folder as the original's script does."""
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.state, folder / self.weights_file)
        (folder / "config.json").write_text(json.dumps(self.config))
        self.save_tokenizer(folder)
        return folder

    def save_tokenizer(self, folder: Path) -> None:
        (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
        (folder / "special_tokens_map.json").write_text(json.dumps({"unk_token": "[UNK]"}))

    def rows(self, count: int = 24, seed: int = 1) -> list[Row]:
        """Return texts of different lengths, the second half of each in segment 1."""
        generator = torch.Generator().manual_seed(seed)
        rows = []
        for _ in range(count):
            length = int(torch.randint(1, 12, (1,), generator=generator))
            words = torch.randint(5, 60, (length,), generator=generator).tolist()
            half = length // 2
            rows.append(Row([2, *words, 3], [0] * (half + 2) + [1] * (length - half)))
        return rows


class RobertaBackbone(System):
    """Positions from 2, one segment, byte pairs."""

    prefix = "roberta"
    epsilon = 1e-5
    vocabulary, positions, types = 60, POSITIONS + 2, 1
    has_types = False

    def sizes(self) -> dict[str, Any]:
        changed = {"type_vocab_size": 1, "max_position_embeddings": POSITIONS + 2}
        return super().sizes() | changed | {"pad_token_id": 1, "vocab_size": 60}

    def embed(self, row: Row) -> Tensor:
        types = [0] * len(row.ids)
        return self.norm_embeddings(
            embed(self.state, "roberta.embeddings", row.ids, types, first=2)
        )

    def save_tokenizer(self, folder: Path) -> None:
        letters = [chr(code) for code in range(ord("!"), ord("!") + 54)]
        words = ["<s>", "<pad>", "</s>", "<unk>", *letters, "<mask>", "\u0120"]
        (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
        (folder / "merges.txt").write_text("#version: 0.2\n")

    def rows(self, count: int = 24, seed: int = 1) -> list[Row]:
        rows = super().rows(count, seed)
        return [Row([0, *row.ids[1:-1], 2], [0] * len(row.ids)) for row in rows]


class AlbertBackbone(System):
    """One layer for all depths; narrow embeddings; a pooler that is a plain linear layer."""

    prefix = "albert"
    depth = 4
    names = ALBERT
    EMBEDDING = 16
    MAPPING = "albert.encoder.embedding_hidden_mapping_in"

    def sizes(self) -> dict[str, Any]:
        return super().sizes() | {
            "model_type": "albert",
            "embedding_size": self.EMBEDDING,
            "hidden_act": "gelu_new",
            "inner_group_num": 1,
            "num_hidden_groups": 1,
        }

    def draw_backbone(self) -> None:
        width = self.EMBEDDING
        self.draw_embeddings("albert.embeddings", self.vocabulary, POSITIONS, 2, width)
        self.draw.linear(self.MAPPING, width, WIDTH)
        self.draw_layer(self.layer_name(0), ALBERT)

    def save_tokenizer(self, folder: Path) -> None:
        """Write BERT's tokenizer, as the models of Chinese have it."""
        super().save_tokenizer(folder)
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')

    def layer_name(self, index: int) -> str:
        return "albert.encoder.albert_layer_groups.0.albert_layers.0"

    def embed(self, row: Row) -> Tensor:
        return linear(self.state, self.MAPPING, super().embed(row))


class DistilBertBackbone(System):
    """No segments; other names."""

    prefix = "distilbert"
    layers = "transformer.layer"
    names = DISTILBERT
    types = 0
    has_types = False

    def sizes(self) -> dict[str, Any]:
        return {
            "vocab_size": self.vocabulary,
            "dim": WIDTH,
            "n_layers": self.depth,
            "n_heads": HEADS,
            "hidden_dim": INNER,
            "max_position_embeddings": POSITIONS,
            "activation": "gelu",
        }

    def rows(self, count: int = 24, seed: int = 1) -> list[Row]:
        return [Row(row.ids, [0] * len(row.ids)) for row in super().rows(count, seed)]
