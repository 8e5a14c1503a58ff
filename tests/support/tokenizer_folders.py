"""Tiny model folders with each kind of tokenizer files, as the systems of the field write them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers.pre_tokenizers import ByteLevel
from transformers.utils import sentencepiece_model_pb2_new as sentencepiece

from tests.support.wordpiece import wordpiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    *("the", "The", "film", "Film", "un", "##afford", "##able", "##UN", "der", "Der", "mann", "ma"),
    *("##nn", "##g", "\u4e2d", "!", ",", "naive", "na\u00efve", "cafe", "caf\u00e9", "new", "york"),
    *("New", "York", "<", ">", "[", "]", "x", "y", "e", "##1", "a", "\u00e1", "tgt"),
]
_ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_PIECES = [
    *("\u2581the", "\u2581The", "\u2581film", "\u2581un", "afford", "able", "\u2581new"),
    *("\u2581york", "\u2581", *"abcdefghijklmnopqrstuvwxyzNYFT!,.<>[]"),
    *("\u00e9", "\u00ef", "\u4e2d", "1", "e\u0301"),
]


class Folder(NamedTuple):
    """A kind of tokenizer folder: the family in its `config.json`, and what writes its files."""

    family: str
    files: Callable[[Path], None]


def write_folder(folder: Path, kind: str, files: Mapping[str, Any] = {}) -> Path:
    """Write a model folder without weights.

    Args:
        folder: is made.
        kind: one of `FOLDERS`.
        files: further ones, by name: text, bytes, or what becomes JSON. `config.json` adds to
            the family's, and None takes a key out of it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    FOLDERS[kind].files(folder)
    config = {"model_type": FOLDERS[kind].family} | files.get("config.json", {})
    stated = {key: value for key, value in config.items() if value is not None}
    for name, content in {**files, "config.json": stated}.items():
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def _vocabulary(folder: Path) -> None:
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n", "utf-8")


def _mpnet(folder: Path) -> None:
    words = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", "utf-8")


def _wordpiece_json(lowercase: bool) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        tokenizer = wordpiece(["[MASK]", *WORDS])
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        tokenizer.add_special_tokens([*SPECIAL])
        tokenizer.enable_truncation(7)
        tokenizer.save(str(folder / "tokenizer.json"))

    return write


def _byte_vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    merges = [("\u0120", "f"), ("i", "l"), ("t", "h"), ("th", "e"), ("\u0120", "the")]
    words = [*_ROBERTA, *sorted(ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    return {word: i for i, word in enumerate(words)}, merges


def _byte_pairs(folder: Path) -> None:
    vocabulary, merges = _byte_vocabulary()
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")


def _byte_pairs_json(folder: Path) -> None:
    vocabulary, merges = _byte_vocabulary()
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.add_special_tokens(_ROBERTA)
    tokenizer.save(str(folder / "tokenizer.json"))


def _unigram_json(folder: Path) -> None:
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    tokenizer = Tokenizer(models.Unigram([*pieces, *((p, -1.0) for p in _PIECES)], unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.save(str(folder / "tokenizer.json"))


def _pieces(name: str, *special: str, unknown: str) -> Callable[[Path], None]:
    """Return what writes a SentencePiece model of a unigram tokenizer."""

    def write(folder: Path) -> None:
        model = sentencepiece.ModelProto()
        for piece in special:
            kind = 2 if piece == unknown else 3
            model.pieces.add(piece=piece, score=0.0, type=kind)
        for piece in _PIECES:
            model.pieces.add(piece=piece, score=-1.0, type=1)
        model.trainer_spec.model_type = 1
        model.trainer_spec.unk_id = special.index(unknown)
        model.normalizer_spec.add_dummy_prefix = True
        (folder / name).write_bytes(model.SerializeToString())

    return write


FOLDERS = {
    "vocab.txt": Folder("bert", _vocabulary),
    "mpnet": Folder("mpnet", _mpnet),
    "distilbert": Folder("distilbert", _vocabulary),
    "lowercasing tokenizer.json": Folder("bert", _wordpiece_json(True)),
    "cased tokenizer.json": Folder("electra", _wordpiece_json(False)),
    "vocab.json": Folder("roberta", _byte_pairs),
    "byte-level tokenizer.json": Folder("roberta", _byte_pairs_json),
    "modernbert": Folder("modernbert", _byte_pairs_json),
    "unigram tokenizer.json": Folder("xlm-roberta", _unigram_json),
    "spiece.model": Folder(
        "albert",
        _pieces("spiece.model", "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", unknown="<unk>"),
    ),
    "sentencepiece.bpe.model": Folder(
        "xlm-roberta",
        _pieces("sentencepiece.bpe.model", "<unk>", "<s>", "</s>", unknown="<unk>"),
    ),
    "spm.model": Folder(
        "deberta-v2", _pieces("spm.model", "[PAD]", "[CLS]", "[SEP]", "[UNK]", unknown="[UNK]")
    ),
}
