"""A checkpoint's tokenizer, from any kind of files, as `tokenizer.json`."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from models.errors import UnusableCheckpoint
from models.model_files import read_json
from serve.bundle.loader import TOKENIZER

_VOCABULARY, _BPE, _MERGES = "vocab.txt", "vocab.json", "merges.txt"
_SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "spm.model")
_BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# UER's code uses these fixed ids.
_UER_IDS = {"[UNK]": 100, "[CLS]": 101, "[SEP]": 102}


class _Source(NamedTuple):
    """Files that a tokenizer can be made from.

    Attributes:
        files: file names; all of them must exist.
        name: name for the user.
        build: converts a folder's files into the `tokenizers` library's JSON.
    """

    files: tuple[str, ...]
    name: str
    build: Callable[[Path], str]


def tokenizer_json(folder: Path, checkpoint_format: str) -> tuple[str, str]:
    """Return the `tokenizers` library's JSON, and the name of the files it was made from.

    Raises:
        UnusableCheckpoint: there is no tokenizer, or it cannot be converted.
    """
    sources = (_FASTBERT, *_SOURCES) if checkpoint_format == "FastBERT" else _SOURCES
    for source in sources:
        if all((folder / name).is_file() for name in source.files):
            try:
                return source.build(folder), source.name
            except UnusableCheckpoint:
                raise
            except Exception as error:  # the libraries raise no more specific type
                raise UnusableCheckpoint(
                    f"{folder}: the tokenizer in {source.name} cannot be read: {error}"
                ) from error
    raise UnusableCheckpoint(
        f"{folder} holds no tokenizer: expected {TOKENIZER}, {_VOCABULARY}, {_BPE} with {_MERGES}, "
        f"or {' or '.join(_SENTENCEPIECE)}"
    )


def _ready(folder: Path) -> str:
    return (folder / TOKENIZER).read_text("utf-8")


def _from_vocabulary(folder: Path) -> str:
    return _wordpiece(folder).to_str()


def _wordpiece(folder: Path) -> Tokenizer:
    """Return BERT's tokenizer, or MPNet's, which writes a pair `<s> a </s></s> b </s>`.

    Settings that the folder lacks are guessed from the vocabulary.
    """
    settings = _settings(folder)
    vocabulary = models.WordPiece.read_file(str(folder / _VOCABULARY))
    cased = any(word != word.lower() for word in vocabulary if word not in _BERT_SPECIAL)
    special = {name: settings.get(f"{name[1:-1].lower()}_token", name) for name in _BERT_SPECIAL}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=_text(special["[UNK]"])))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", not cased),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    known = [_text(token) for token in special.values() if _text(token) in vocabulary]
    tokenizer.add_special_tokens(known)
    first, last = _text(special["[CLS]"]), _text(special["[SEP]"])
    ends = (last, vocabulary[last]), (first, vocabulary[first])
    mpnet = first == "<s>"
    tokenizer.post_processor = (
        processors.RobertaProcessing(*ends) if mpnet else processors.BertProcessing(*ends)
    )
    return tokenizer


def _fastbert(folder: Path) -> str:
    """Return FastBERT's tokenizer: `[CLS] a` in segment 1; `[CLS] a [SEP] b [SEP]` in 1 and 2."""
    tokenizer = _wordpiece(folder)
    vocabulary = tokenizer.get_vocab()
    wrong = [name for name, i in _UER_IDS.items() if vocabulary.get(name) != i]
    if wrong:
        raise UnusableCheckpoint(
            f"{folder}/{_VOCABULARY}: FastBERT's code takes {wrong[0]} to have id "
            f"{_UER_IDS[wrong[0]]}, but here it is {vocabulary.get(wrong[0])}: is it the model's?"
        )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:1 $A:1",
        pair="[CLS]:1 $A:1 [SEP]:1 $B:2 [SEP]:2",
        special_tokens=[(name, _UER_IDS[name]) for name in ("[CLS]", "[SEP]")],
    )
    return tokenizer.to_str()


def _byte_pairs(folder: Path) -> str:
    """Return RoBERTa's tokenizer."""
    space = bool(_settings(folder).get("add_prefix_space", False))
    tokenizer = Tokenizer(models.BPE.from_file(str(folder / _BPE), str(folder / _MERGES)))
    vocabulary = tokenizer.get_vocab()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    special = [name for name in ("<s>", "<pad>", "</s>", "<unk>") if name in vocabulary]
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", vocabulary["</s>"]), ("<s>", vocabulary["<s>"]), True, space
    )
    return tokenizer.to_str()


def _by_transformers(folder: Path) -> str:
    """Convert a SentencePiece model with transformers, which needs the package sentencepiece."""
    from transformers import AutoTokenizer

    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        fast = AutoTokenizer.from_pretrained(
            folder, use_fast=True, trust_remote_code=False, local_files_only=True
        )
        return fast.backend_tokenizer.to_str()
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise UnusableCheckpoint(
            f"{folder}: its SentencePiece model could not be converted: {reason}. Install "
            "sentencepiece and protobuf, or save tokenizer.json with transformers elsewhere"
        ) from error
    finally:
        logging.disable(disabled)


def _settings(folder: Path) -> dict[str, Any]:
    """Return `tokenizer_config.json` over `special_tokens_map.json`."""
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        settings |= read_json(folder, name)
    return settings


def _text(token: Any) -> str:
    """Return a special token's text; in some files it is an object."""
    return str(token["content"] if isinstance(token, dict) else token)


_FASTBERT = _Source((_VOCABULARY,), "vocab.txt, as FastBERT encodes", _fastbert)
_SOURCES = (
    _Source((TOKENIZER,), "tokenizer.json", _ready),
    _Source((_VOCABULARY,), "vocab.txt", _from_vocabulary),
    _Source((_BPE, _MERGES), "vocab.json and merges.txt", _byte_pairs),
    *(_Source((name,), name, _by_transformers) for name in _SENTENCEPIECE),
)
