from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from serve.bundle.loader import Bundle
from serve.errors import InvalidRequest, TextTooLong
from serve.tokenization.length_bounds import Text
from serve.tokenization.tokenizer import TextEncoder, Tokens
from tests.support.tiny import MAX_TOKENS, tiny_tokenizer

CLS, SEP = 2, 3


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


def test_second_text_of_a_pair_has_its_own_type(encoder: TextEncoder) -> None:
    [pair] = encoder.encode([Text("w0", "w1 w2")])
    assert pair.token_type_ids.tolist() == [0, 0, 0, 1, 1, 1]
    [single] = encoder.encode([Text("w0")])
    assert ids(pair)[:3] == ids(single)


def test_pairs_and_texts_may_be_mixed_and_are_not_padded(encoder: TextEncoder) -> None:
    texts = [Text("w0"), Text("w0", "w1"), Text("w0 " * 20)]
    mixed = [ids(tokens) for tokens in encoder.encode(texts)]
    assert mixed == [ids(encoder.encode([text])[0]) for text in texts]
    assert [len(tokens) for tokens in mixed] == [3, 5, 22]


def test_longest_text_fits_and_one_token_more_does_not(encoder: TextEncoder) -> None:
    fits = "w0 " * (MAX_TOKENS - 2)
    assert len(ids(encoder.encode([Text(fits)])[0])) == MAX_TOKENS
    with pytest.raises(TextTooLong, match=rf"inputs\[1\] has {MAX_TOKENS + 1} tokens"):
        encoder.encode([Text("w0"), Text(fits + "w0")])


def test_cut_text_keeps_its_beginning_and_its_last_special_token(encoder: TextEncoder) -> None:
    [tokens] = encoder.encode([Text("w5 " + "w0 " * 500)], truncate=True)
    first, second, *_, last = ids(tokens)
    assert len(ids(tokens)) == MAX_TOKENS
    assert (first, second, last) == (CLS, ids(encoder.encode([Text("w5")])[0])[1], SEP)


def test_of_a_pair_the_longer_text_is_cut(encoder: TextEncoder) -> None:
    [tokens] = encoder.encode([Text("w5 w6", "w0 " * 500)], truncate=True)
    assert len(ids(tokens)) == MAX_TOKENS
    assert tokens.token_type_ids.tolist().count(0) == 4


def test_cutting_does_not_leak_into_calls_from_other_threads(encoder: TextEncoder) -> None:
    def encode(length: int) -> int:
        truncate = length > 200
        try:
            return len(ids(encoder.encode([Text("w0 " * length)], truncate)[0]))
        except TextTooLong:
            return -1

    lengths = [1, 201, 7, 300, 61, 62, 63] * 30
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(encode, lengths))
    assert found == [3, MAX_TOKENS, 9, MAX_TOKENS, 63, 64, -1] * 30


def test_text_that_is_no_unicode_is_refused(encoder: TextEncoder) -> None:
    with pytest.raises(InvalidRequest, match="the tokenizer refuses this text"):
        encoder.encode([Text("\ud800")])


def test_padding_in_the_tokenizer_s_file_is_ignored(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.enable_padding(length=50)
    tokenizer.enable_truncation(5)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    encoder = TextEncoder(tmp_path / "tokenizer.json", MAX_TOKENS)
    assert len(ids(encoder.encode([Text("w0 " * 10)])[0])) == 12


def test_text_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.post_processor = None  # no special tokens
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    encoder = TextEncoder(tmp_path / "tokenizer.json", MAX_TOKENS)
    with pytest.raises(InvalidRequest, match=r"inputs\[1\] has no tokens"):
        encoder.encode([Text("w0"), Text(" ")])
