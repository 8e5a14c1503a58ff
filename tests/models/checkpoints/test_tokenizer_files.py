"""Tokenizers from every kind of files and settings, encoding as AutoTokenizer or the original."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import import_utils

from models.checkpoints import UnusableCheckpoint, load
from models.checkpoints.tokenizer_files import ReadTokenizer, check_embeddings, read_tokenizer
from serve.tokenization.tokenizer import Text, TextEncoder
from tests.support.originals.fastbert import VOCABULARY, FastBert
from tests.support.tokenizer_folders import FOLDERS, SPECIAL, write_folder

CONFIG = "tokenizer_config.json"
LIMIT = 12
READY = [kind for kind in FOLDERS if "tokenizer.json" in kind or kind == "modernbert"]
# Those that a BertTokenizer can be made of; ModernBERT's is any, whatever the class's name is.
FOR_BERT = ("bert", "distilbert", "electra", "mpnet", "modernbert")
TEXTS = [
    "The Film: UNaffordable, naïve café",
    "Der Mann mag \u4e2d\u4e2d film [SEP] 東京",
    "a\u0301 \u0130 \ufb01lm \u2167 \u00a0 \u200bx",
    " New York, new york NEW YORK New  York",
    "[TGT] x[TGT]y <e1>film</e1> [MASK] <mask> </s>",
    "\U0001f3ac film \U0001f3ac",
    "the film " * 20,
    "",
]
TGT = {"content": "[TGT]", "special": True, "normalized": False}
CITY = {"content": "New York", "special": False}
FLAGS = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": True}


def decoder(*tokens: dict[str, Any], first: int) -> dict[str, Any]:
    return {str(i): FLAGS | token for i, token in enumerate(tokens, first)}


# What a folder may say beside its vocabulary, by the file that says it.
SETTINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "added_tokens.json": {"added_tokens.json": {"[TGT]": 41, "New York": 42}},
    "additional_special_tokens": {CONFIG: {"additional_special_tokens": ["[TGT]", "New York"]}},
    "extra_special_tokens": {CONFIG: {"extra_special_tokens": ["<e1>", "</e1>"]}},
    "special_tokens_map": {
        "special_tokens_map.json": {"additional_special_tokens": ["[TGT]"], "sep_token": "film"}
    },
    "added_tokens_decoder": {CONFIG: {"added_tokens_decoder": decoder(TGT, CITY, first=41)}},
    "lstrip": {CONFIG: {"added_tokens_decoder": decoder(CITY | {"lstrip": True}, first=41)}},
    "rstrip": {CONFIG: {"added_tokens_decoder": decoder(CITY | {"rstrip": True}, first=41)}},
    "single_word": {
        CONFIG: {"added_tokens_decoder": decoder(CITY | {"single_word": True}, first=41)}
    },
    "not normalized": {
        CONFIG: {"added_tokens_decoder": decoder(CITY | {"normalized": False}, first=41)}
    },
    "cased": {CONFIG: {"do_lower_case": False}},
    "lower": {CONFIG: {"do_lower_case": True}},
    "accents kept": {CONFIG: {"strip_accents": False}},
    "accents stripped": {CONFIG: {"strip_accents": True, "do_lower_case": False}},
    "keep_accents": {CONFIG: {"keep_accents": True}},
    "no chinese": {CONFIG: {"tokenize_chinese_chars": False}},
    "prefix space": {CONFIG: {"add_prefix_space": True}},
    "no prefix space": {CONFIG: {"add_prefix_space": False}},
    "other ends": {CONFIG: {"cls_token": "the", "sep_token": "film", "mask_token": "x"}},
    "other unknown": {CONFIG: {"unk_token": "film"}},
    "new ends": {CONFIG: {"cls_token": "<begin>", "sep_token": {"__type": "AddedToken", **TGT}}},
    "no types": {CONFIG: {"model_input_names": ["input_ids", "attention_mask"]}},
    "padding left": {CONFIG: {"padding_side": "left"}},
    "split off": {CONFIG: {"never_split": ["Der"], "do_basic_tokenize": False}},
    "clean up": {CONFIG: {"clean_up_tokenization_spaces": True}},
    "any class": {CONFIG: {"tokenizer_class": "PreTrainedTokenizerFast"}},
    "slow name": {CONFIG: {"tokenizer_class": "PreTrainedTokenizer"}},
    "BertTokenizer": {CONFIG: {"tokenizer_class": "BertTokenizer"}},
    "class in config.json": {"config.json": {"tokenizer_class": "BertTokenizerFast"}},
    "unknown class": {CONFIG: {"tokenizer_class": "OurTokenizer"}},
    "no family": {"config.json": {"model_type": None}},
}


@pytest.fixture(autouse=True)
def sentencepiece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transformers convert SentencePiece models: it asks for the package and never calls it."""
    present = lambda: True  # noqa: E731
    message = import_utils.BACKENDS_MAPPING["sentencepiece"][1]
    monkeypatch.setitem(import_utils.BACKENDS_MAPPING, "sentencepiece", (present, message))


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def make(kind: str = "vocab.txt", **files: Any) -> Path:
        return write_folder(tmp_path / "model", kind, files)

    return make


def family(kind: str) -> str:
    return FOLDERS[kind].family


def read(folder: Path, kind: str, checkpoint_format: str = "transformers") -> ReadTokenizer:
    """Read the tokenizer of a kind of folder, or of a family."""
    return read_tokenizer(folder, checkpoint_format, family(kind) if kind in FOLDERS else kind)


def auto(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def ids_and_types(row: Any) -> tuple[list[int], list[int]]:
    return row["input_ids"], row.get("token_type_ids", [0] * len(row["input_ids"]))


def assert_encodes_like(made: ReadTokenizer, reference: PreTrainedTokenizerBase, at: Path) -> None:
    (at / "served.json").write_text(made.content)
    encoder = TextEncoder(at / "served.json", LIMIT)
    added = [f"x {token}film {token}" for token in reference.get_added_vocab()]
    for text in [*TEXTS, *added]:
        for pair in (None, "the film"):
            row = reference(text, pair, truncation=True, max_length=LIMIT)
            (found,) = encoder.encode([Text(text, pair)], truncate=True)
            served = found.input_ids.tolist(), found.token_type_ids.tolist()
            assert served == ids_and_types(row), (text, pair)


def refusal(kind: str, setting: str) -> str | None:
    """Return what is said where transformers makes no tokenizer, or another kind of one."""
    ready = kind in READY
    if setting in ("any class", "slow name", "unknown class") and not ready:
        return r"holds no tokenizer: a \w+ needs tokenizer\.json|makes no tokenizer of"
    if setting in ("BertTokenizer", "class in config.json") and family(kind) not in FOR_BERT:
        return "is a (BPE|Unigram) tokenizer, and.*WordPiece" if ready else "holds no tokenizer: a "
    if kind == "spiece.model" and setting in ("special_tokens_map", "other ends", "new ends"):
        return f"transformers {transformers.__version__} makes no tokenizer of "
    return None


# Every setting for each kind of tokenizer, and for all kinds of folders those that name tokens.
PLAIN_KINDS = ("vocab.txt", "cased tokenizer.json", "vocab.json", "spiece.model")
COMMON = ("nothing", "added_tokens.json", "other ends", "unknown class", "BertTokenizer")
CASES = [
    (kind, setting) for kind in FOLDERS for setting in (SETTINGS if kind in PLAIN_KINDS else COMMON)
]


@pytest.mark.parametrize(("kind", "setting"), CASES)
def test_settings_beside_the_vocabulary_count_as_they_do_for_transformers(
    kind: str, setting: str, folder: Callable[..., Path], tmp_path: Path
) -> None:
    model = folder(kind, **SETTINGS[setting])
    if message := refusal(kind, setting):
        with pytest.raises(UnusableCheckpoint, match=message):
            read(model, kind)
        return
    made = read(model, kind)
    if setting == "no family":
        (model / "config.json").write_text(json.dumps({"model_type": family(kind)}))
    assert_encodes_like(made, auto(model), tmp_path)


@pytest.mark.parametrize(
    ("kind", "files", "message"),
    [
        (
            "vocab.txt",
            {CONFIG: {"tokenizer_class": "BertJapaneseTokenizer"}},
            "tokenizer_config.json: tokenizer_class BertJapaneseTokenizer is a tokenizer in Python",
        ),
        (
            "vocab.txt",
            {"config.json": {"tokenizer_class": "BertweetTokenizer"}, "bpe.codes": "a b 1\n"},
            "config.json: tokenizer_class BertweetTokenizer is a tokenizer in Python",
        ),
        (
            "vocab.txt",
            {"config.json": {"model_type": "roberta"}, "bpe.codes": "a b 1\n"},
            "RobertaTokenizer needs tokenizer.json or vocab.json and merges.txt",
        ),
        ("vocab.txt", {CONFIG: {"tokenizer_class": ["x"]}}, r"\['x'\]; expected a class's name"),
        ("vocab.txt", {CONFIG: {"tokenizer_class": "T5Tokenizer"}}, "holds no tokenizer"),
        ("vocab.txt", {CONFIG: {"auto_map": {"AutoTokenizer": ["a.B", None]}}}, "auto_map names"),
        (
            "vocab.txt",
            {CONFIG: {"truncation_side": "left"}},
            "tokenizer_config.json: truncation_side is left, and texts",
        ),
        ("vocab.txt", {CONFIG: {"truncation_side": "middle"}}, "current value: middle"),
        ("vocab.json", {CONFIG: {"split_special_tokens": True}}, "split_special_tokens is true"),
        ("vocab.txt", {CONFIG: {"do_lower_case": "false"}}, "is 'false'; expected true or false"),
        ("vocab.txt", {"vocab.txt": b"caf\xe9"}, "makes no tokenizer of the vocabulary: .*UTF-8"),
        ("vocab.txt", {"vocab.txt": "\ufeff[PAD]\nthe\n"}, "begins with a byte order mark"),
        ("vocab.txt", {CONFIG: "{no"}, "tokenizer_config.json is not JSON"),
        ("vocab.txt", {CONFIG: "[]"}, "tokenizer_config.json: expected a JSON object"),
        ("vocab.txt", {"special_tokens_map.json": "{no"}, "special_tokens_map.json is not JSON"),
        ("vocab.txt", {"added_tokens.json": "[1]"}, "added_tokens.json: expected a JSON object"),
        ("vocab.txt", {"tokenizer.json": "{no"}, "tokenizer.json is not JSON"),
        ("vocab.txt", {"tokenizer.json": "{}"}, "makes no tokenizer of tokenizer.json: "),
        (
            "vocab.txt",
            {CONFIG: {"added_tokens_decoder": {"x": 1}}},
            f"makes no tokenizer of {CONFIG}: ",
        ),
        (
            "vocab.txt",
            {"special_tokens_map.json": {"cls_token": 3}},
            "makes no tokenizer of special_tok",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_refused_in_one_sentence(
    kind: str, files: dict[str, Any], message: str, folder: Callable[..., Path]
) -> None:
    with pytest.raises(UnusableCheckpoint, match=message) as caught:
        read(folder(kind, **files), files.get("config.json", {}).get("model_type", family(kind)))
    assert "\n" not in str(caught.value)


def test_a_tokenizer_json_that_cuts_at_the_start_is_refused(folder: Callable[..., Path]) -> None:
    model = folder("byte-level tokenizer.json")
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(7, direction="left")
    tokenizer.save(str(model / "tokenizer.json"))
    with pytest.raises(UnusableCheckpoint, match=r"tokenizer\.json: truncation is left"):
        read(model, "roberta")


def test_a_trained_models_own_tokenizer_is_the_one_it_was_trained_with(
    folder: Callable[..., Path],
) -> None:
    model = folder("cased tokenizer.json", **SETTINGS["added_tokens.json"])
    made = read(model, "electra", "Offramp")
    own = Tokenizer.from_file(str(model / "tokenizer.json"))
    own.no_truncation()
    served = Tokenizer.from_str(made.content)
    assert [served.encode(t).ids for t in TEXTS] == [own.encode(t).ids for t in TEXTS]


@pytest.mark.parametrize("end", ["\r\n", "\n\n\n"])
def test_a_vocabulary_with_other_line_ends(
    end: str, folder: Callable[..., Path], tmp_path: Path
) -> None:
    model = folder(**{"vocab.txt": end.join([*SPECIAL, "the", "film"]) + end})
    assert_encodes_like(read(model, "bert"), auto(model), tmp_path)


def test_fastbert_encodes_as_its_own_code_does(tmp_path: Path) -> None:
    system = FastBert()
    system.save(tmp_path)
    tokenizer = Tokenizer.from_str(read(tmp_path, "bert", "FastBERT").content)
    for texts in (("w1",), ("w3 w4 w50",), ("w1 w2", "w3")):
        found, expected = tokenizer.encode(*texts), system.encode(*texts)
        assert (found.ids, found.type_ids) == (expected.ids, expected.types)
    assert tokenizer.encode("nowhere").ids == [101, 100]


def test_a_vocabulary_that_is_not_fastberts_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY[1:]) + "\n")
    with pytest.raises(
        UnusableCheckpoint, match=r"takes \[UNK\] to have id 100, but here it is 99"
    ):
        read(tmp_path, "bert", "FastBERT")


@pytest.mark.parametrize("checkpoint_format", ["transformers", "FastBERT", "Offramp"])
def test_a_folder_without_a_tokenizer_lists_what_is_read(
    checkpoint_format: str, tmp_path: Path
) -> None:
    with pytest.raises(UnusableCheckpoint, match="holds no tokenizer: "):
        read(tmp_path, "bert", checkpoint_format)


def test_a_token_without_an_embedding_is_named_before_any_work(
    folder: Callable[..., Path],
) -> None:
    model = folder(**SETTINGS["added_tokens.json"])
    made = read(model, "bert")
    check_embeddings(made, 43, model)
    with pytest.raises(UnusableCheckpoint, match=r"the token 'New York' with id 42, and the model"):
        check_embeddings(made, 42, model)
    with pytest.raises(UnusableCheckpoint, match=r"'\[TGT\]' with id 41 \(and 1 more beyond it\)"):
        check_embeddings(made, 41, model)


@pytest.mark.parametrize("stated", ["512", True, -1, 0, 0.5, [], {}])
def test_a_length_that_is_none_is_told_before_weights_are_read(
    stated: object, folder: Callable[..., Path]
) -> None:
    """transformers takes any, and fails on the first text."""
    with pytest.raises(UnusableCheckpoint, match=r"tokenizer_config\.json: model_max_length is"):
        load(folder(**{CONFIG: {"model_max_length": stated}}))
