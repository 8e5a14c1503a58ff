"""Texts to tokens, and which tokenizers are taken."""

import json
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.bundle.loader import Bundle
from serve.errors import InvalidBundle, InvalidRequest, TextTooLong
from serve.tokenization.growth import MOST_PARTS, growth_problem
from serve.tokenization.tokenizer import CHARS_PER_TOKEN, Text, TextEncoder, Tokens
from tests.support.tiny import MAX_TOKENS, tiny_tokenizer

CLS, SEP = 2, 3
MOST_CHARS = CHARS_PER_TOKEN * MAX_TOKENS


@pytest.fixture(scope="module")
def encoder(bundle: Bundle) -> TextEncoder:
    return TextEncoder(bundle.tokenizer_path, MAX_TOKENS)


def ids(tokens: Tokens) -> list[int]:
    return tokens.input_ids.tolist()


def test_text_becomes_ids_with_special_tokens(encoder: TextEncoder) -> None:
    [tokens] = encoder.encode([Text("w0 w5")])
    vocabulary = tiny_tokenizer().get_vocab()
    assert ids(tokens) == [CLS, vocabulary["w0"], vocabulary["w5"], SEP]
    assert tokens.token_type_ids.tolist() == [0, 0, 0, 0]
    assert tokens.input_ids.dtype == tokens.token_type_ids.dtype == np.int64


def test_pairs_have_types_and_inputs_are_not_padded(encoder: TextEncoder) -> None:
    texts = [Text("w0"), Text("w0", "w1 w2"), Text("w0 " * 20)]
    found = encoder.encode(texts)
    assert found[1].token_type_ids.tolist() == [0, 0, 0, 1, 1, 1]
    assert [ids(each) for each in found] == [ids(encoder.encode([text])[0]) for text in texts]
    assert [len(ids(each)) for each in found] == [3, 6, 22]


@pytest.mark.parametrize(
    "text",
    [
        Text("w0 " * (MAX_TOKENS - 1)),
        Text("w0 " * 40, "w0 " * 40),
        # The spaces are no tokens: the characters alone decide, before the text is tokenized.
        Text(" " * MOST_CHARS + "!"),
        Text(" " * MOST_CHARS, "!"),
    ],
)
def test_longest_text_fits_and_a_longer_one_is_refused_by_its_place(
    encoder: TextEncoder, text: Text
) -> None:
    fits = [Text("w0 " * (MAX_TOKENS - 2)), Text(" " * (MOST_CHARS - 1) + "!")]
    assert [len(ids(each)) for each in encoder.encode(fits)] == [MAX_TOKENS, 3]
    with pytest.raises(TextTooLong, match=r"^inputs\[1\] has "):
        encoder.encode([Text("w0"), text])


def test_cut_texts_keep_their_beginning_and_the_last_special_token(encoder: TextEncoder) -> None:
    texts = [Text("w5 " + "w0 " * 500), Text("w5 w6", "w0 " * 500), Text(" " * MOST_CHARS + "w5")]
    text, pair, blank = encoder.encode(texts, truncate=True)
    first, second, *_, last = ids(text)
    assert (first, second, last) == (CLS, ids(encoder.encode([Text("w5")])[0])[1], SEP)
    assert len(ids(text)) == len(ids(pair)) == MAX_TOKENS
    assert pair.token_type_ids.tolist().count(0) == 4  # the longer text is cut
    assert ids(blank) == [CLS, SEP]  # of a giant text the tokenizer sees the beginning alone


def test_cutting_does_not_leak_into_calls_from_other_threads(encoder: TextEncoder) -> None:
    def encode(length: int) -> int:
        try:
            return len(ids(encoder.encode([Text("w0 " * length)], length > 200)[0]))
        except TextTooLong:
            return -1

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(encode, [1, 201, 7, 300, 61, 62, 63] * 30))
    assert found == [3, MAX_TOKENS, 9, MAX_TOKENS, 63, 64, -1] * 30


def test_text_that_is_no_unicode_is_refused(encoder: TextEncoder) -> None:
    with pytest.raises(InvalidRequest):
        encoder.encode([Text("\ud800")])


def test_settings_in_the_file_are_ignored_and_texts_without_tokens_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.enable_padding(length=50)
    tokenizer.enable_truncation(5)
    tokenizer.post_processor = None  # no special tokens
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    encoder = TextEncoder(tmp_path / "tokenizer.json", MAX_TOKENS)
    assert len(ids(encoder.encode([Text("w0 " * 10)])[0])) == 10
    with pytest.raises(InvalidRequest, match=r"^inputs\[1\] "):
        encoder.encode([Text("w0"), Text(" ")])


DOUBLES = {"type": "Replace", "pattern": {"String": "z"}, "content": "zz"}
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
PREPENDS = {"type": "Prepend", "prepend": "\u2581"}
BYTES = {"type": "ByteLevel"}


def precompiled(longest: str) -> dict[str, Any]:
    content = (4).to_bytes(4, "little") + b"trie" + f"a\0{longest}\0".encode()
    return {"type": "Precompiled", "precompiled_charsmap": b64encode(content).decode()}


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


@pytest.mark.parametrize(
    ("normalizer", "taken"),
    [
        (None, True),
        (SPACES, True),
        (sequence(*[SPACES] * 9, {"type": "NFKC"}, PREPENDS), True),
        # SentencePiece's map for NFKC has texts of 18 letters.
        (sequence(SPACES, precompiled("l" * 18), SPACES), True),
        (sequence(BYTES, PREPENDS), True),
        (sequence(DOUBLES, sequence(DOUBLES, DOUBLES)), True),
        (sequence(*[DOUBLES] * 7), False),
        (sequence(*[sequence(DOUBLES)] * 20), False),
        (sequence(*[BYTES] * 4), False),
        (sequence(*[PREPENDS] * 7), False),
        (sequence(precompiled("l" * 18), precompiled("l" * 18)), False),
        ({"type": "Prepend", "prepend": "z" * 100}, False),
        ({"type": "Replace", "pattern": {"Regex": "."}, "content": "z" * 100}, False),
        (sequence(*[SPACES] * (MOST_PARTS + 1)), False),
    ],
)
def test_normalizers_that_make_a_text_much_longer_are_refused(
    normalizer: dict[str, Any] | None, taken: bool, tmp_path: Path
) -> None:
    assert (growth_problem(normalizer) is None) == taken
    if taken or "Precompiled" in json.dumps(normalizer):
        return  # the library reads no made-up map
    document = json.loads(tiny_tokenizer().to_str())
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({**document, "normalizer": normalizer}))
    with pytest.raises(InvalidBundle, match="its normalizer"):
        TextEncoder(file, 64)
