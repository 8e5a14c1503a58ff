"""Tokenization for training: pairs, cutting, and the tokenizer that is shipped."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from models.data.alignment import IGNORED
from models.data.encoding import copy_tokenizer, encode
from models.data.examples import Example
from models.data.unlabelled import without_label
from models.errors import TrainingFailed
from serve.tokenization.tokenizer import Text
from tests.support.wordpiece import TAKEN_AS_IT_IS

CLS, SEP = 2, 3


def test_pair_is_one_row_with_token_types(make_encoder: Callable[[], Path]) -> None:
    (row,) = encode(make_encoder(), [Example("the film", "is bad", 1)], max_tokens=16)
    assert row.ids == [CLS, 10, 11, SEP, 12, 7, SEP]
    assert row.types == [0, 0, 0, 0, 1, 1, 1]
    assert row.label == 1


def test_a_text_without_a_label_tells_a_tagger_where_words_begin(
    make_encoder: Callable[[], Path],
) -> None:
    (row,) = encode(make_encoder(), [without_label(Text("the film"), "token")], max_tokens=16)
    assert (row.ids, row.label) == ([CLS, 10, 11, SEP], [IGNORED, 0, 0, IGNORED])


def test_rows_are_cut_but_not_padded(make_encoder: Callable[[], Path]) -> None:
    examples = [Example("bad", None, 0), Example("very " * 20, None, 0)]
    short, long = encode(make_encoder(), examples, max_tokens=5)
    assert short.ids == [CLS, 7, SEP], "the encoder's tokenizer asks for padding"
    assert long.ids == [CLS, 13, 13, 13, SEP], "the last special token stays"


def test_copied_tokenizer_neither_pads_nor_cuts(
    make_encoder: Callable[[], Path], tmp_path: Path
) -> None:
    source, out = make_encoder(), tmp_path / "out"
    out.mkdir()
    copy_tokenizer(source, out, max_tokens=32)
    again = Tokenizer.from_file(str(out / "tokenizer.json"))
    assert again.padding is None
    assert again.truncation is None
    config = json.loads((out / "tokenizer_config.json").read_text())
    assert config == {**TAKEN_AS_IT_IS, "model_max_length": 32}


def test_encoder_without_a_fast_tokenizer_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match=r"has no tokenizer.json"):
        encode(tmp_path, [Example("bad", None, 0)], max_tokens=5)
