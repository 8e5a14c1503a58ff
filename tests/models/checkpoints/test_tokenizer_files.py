"""Tokenizers from every kind of files, encoding as transformers or the original does."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import BertTokenizerFast, MPNetTokenizerFast, RobertaTokenizerFast

from models.checkpoints import UnusableCheckpoint
from models.checkpoints.tokenizer_files import tokenizer_json
from tests.support.originals.fastbert import VOCABULARY, FastBert

WORDS = ["the", "film", "un", "##afford", "##able", "Der", "mann", "ma", "##nn", "中", "!", "naive"]
TEXTS = ["The film: unaffordable!", "na\u00efve \u4e2d\u4e2d film", "Der Mann [SEP] film", "", "x"]


@pytest.fixture
def wordpiece(tmp_path: Path) -> Path:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *WORDS]) + "\n")
    return tmp_path


def read(folder: Path, checkpoint_format: str = "transformers") -> tuple[Tokenizer, str]:
    content, files = tokenizer_json(folder, checkpoint_format)
    return Tokenizer.from_str(content), files


@pytest.mark.parametrize("lowercase", [True, False])
def test_vocab_txt_encodes_as_transformers_does(wordpiece: Path, lowercase: bool) -> None:
    config = {"do_lower_case": lowercase, "tokenizer_class": "BertTokenizer"}
    (wordpiece / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer, files = read(wordpiece)
    reference = BertTokenizerFast.from_pretrained(wordpiece)
    for text in TEXTS:
        assert tokenizer.encode(text).ids == reference(text)["input_ids"], text
        pair, expected = tokenizer.encode(text, "film"), reference(text, "film")
        assert (pair.ids, pair.type_ids) == (expected["input_ids"], expected["token_type_ids"])
    assert files == "vocab.txt"


def test_a_vocabulary_with_capitals_is_cased_where_nothing_says_so(wordpiece: Path) -> None:
    assert read(wordpiece)[0].encode("Der Mann").tokens == ["[CLS]", "Der", "[UNK]", "[SEP]"]
    lines = (wordpiece / "vocab.txt").read_text().replace("Der", "der")
    (wordpiece / "vocab.txt").write_text(lines)
    assert read(wordpiece)[0].encode("Der Mann").tokens == ["[CLS]", "der", "mann", "[SEP]"]


def test_special_tokens_of_a_map_are_used(wordpiece: Path) -> None:
    lines = (wordpiece / "vocab.txt").read_text().replace("[CLS]", "<begin>")
    (wordpiece / "vocab.txt").write_text(lines)
    special = {"cls_token": {"content": "<begin>"}}
    (wordpiece / "special_tokens_map.json").write_text(json.dumps(special))
    assert read(wordpiece)[0].encode("the").tokens == ["<begin>", "the", "[SEP]"]


def test_a_pair_of_mpnet_has_two_separators_between_its_texts(wordpiece: Path) -> None:
    special = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "[UNK]", "mask": "<mask>"}
    (wordpiece / "vocab.txt").write_text("\n".join([*special.values(), *WORDS]) + "\n")
    config = {f"{name}_token": text for name, text in special.items()}
    (wordpiece / "tokenizer_config.json").write_text(json.dumps(config | {"do_lower_case": True}))
    tokenizer, _ = read(wordpiece)
    reference = MPNetTokenizerFast.from_pretrained(wordpiece)
    for text in TEXTS:
        assert tokenizer.encode(text).ids == reference(text)["input_ids"], text
        assert tokenizer.encode(text, "film").ids == reference(text, "film")["input_ids"]
    pair = ["<s>", "the", "</s>", "</s>", "film", "</s>"]
    assert tokenizer.encode("the", "film").tokens == pair


def test_byte_pairs_encode_as_transformers_does(tmp_path: Path) -> None:
    words = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefgh", "\u0120", "\u0120a", "bc", "<mask>"]
    (tmp_path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n\u0120 a\nb c\n")
    tokenizer, files = read(tmp_path)
    reference = RobertaTokenizerFast.from_pretrained(tmp_path)
    for text in ("a bc", "abc abc", " bcbc", "h"):
        assert tokenizer.encode(text).ids == reference(text)["input_ids"], text
    assert tokenizer.encode("a", "bc").ids == reference("a", "bc")["input_ids"]
    assert files == "vocab.json and merges.txt"


def test_fastbert_encodes_as_its_own_code_does(tmp_path: Path) -> None:
    system = FastBert()
    system.save(tmp_path)
    tokenizer, _ = read(tmp_path, "FastBERT")
    for texts in (("w1",), ("w3 w4 w50",), ("w1 w2", "w3")):
        found, expected = tokenizer.encode(*texts), system.encode(*texts)
        assert (found.ids, found.type_ids) == (expected.ids, expected.types)
    assert tokenizer.encode("nowhere").ids == [101, 100]


def test_a_vocabulary_that_is_not_fastberts_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY[1:]) + "\n")
    with pytest.raises(
        UnusableCheckpoint, match=r"takes \[UNK\] to have id 100, but here it is 99"
    ):
        read(tmp_path, "FastBERT")


def test_tokenizer_json_goes_before_all_else(wordpiece: Path) -> None:
    (wordpiece / "tokenizer.json").write_text("{}")
    assert tokenizer_json(wordpiece, "transformers") == ("{}", "tokenizer.json")


def test_a_folder_without_a_tokenizer_lists_what_is_read(tmp_path: Path) -> None:
    with pytest.raises(UnusableCheckpoint, match=r"holds no tokenizer: expected tokenizer\.json, "):
        read(tmp_path)


def test_a_damaged_vocabulary_is_named(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("one\ntwo\n")
    with pytest.raises(UnusableCheckpoint, match=r"the tokenizer in vocab\.txt cannot be read"):
        read(tmp_path)


def test_sentencepiece_that_cannot_be_converted_says_what_would_help(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    (tmp_path / "spiece.model").write_bytes(b"no model")
    with pytest.raises(UnusableCheckpoint, match="Install sentencepiece and protobuf, or save"):
        read(tmp_path)
