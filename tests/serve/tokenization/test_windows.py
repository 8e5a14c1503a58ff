"""Windows cover every token of a text; tokens are read where they have most around them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.bundle.loader import Bundle, load_bundle
from serve.errors import InvalidRequest, TextTooLong
from serve.tokenization.inputs import Ids, InputReader
from serve.tokenization.tokenizer import Text, Tokens
from serve.tokenization.windows import MAX_WINDOWS, Cut
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.tiny import MAX_TOKENS, WORDS

OWN = MAX_TOKENS - 2


@pytest.fixture(scope="module")
def reader(bundle: Bundle) -> InputReader:
    return InputReader(bundle.tokenizer_path, bundle.manifest)


def words(count: int) -> str:
    return " ".join(WORDS[i * 7 % len(WORDS)] for i in range(count))


def one(reader: InputReader, text: str, stride: int) -> Tokens | Cut:
    (read,) = reader.read_windows([Text(text)], stride)
    return read


@given(num_words=st.integers(1, 900), stride=st.integers(0, MAX_TOKENS // 2))
def test_windows_cover_every_token_and_share_just_the_stride(
    reader: InputReader, num_words: int, stride: int
) -> None:
    found = one(reader, words(num_words), stride)
    if num_words <= OWN:
        assert isinstance(found, Tokens)
        (plain,) = reader.read([Text(words(num_words))], truncate=False)
        np.testing.assert_array_equal(found.input_ids, plain.input_ids)
        return
    assert isinstance(found, Cut)
    whole = found.whole.input_ids
    joined = list(found.windows[0].input_ids[1:-1])
    for window in found.windows:
        assert len(window.input_ids) <= MAX_TOKENS
        assert (window.input_ids[0], window.input_ids[-1]) == (whole[0], whole[-1])
    for before, window in zip(found.windows, found.windows[1:], strict=False):
        own = list(window.input_ids[1:-1])
        assert own[:stride] == list(before.input_ids[1:-1])[OWN - stride :]
        assert len(own) > stride, "a window that adds nothing"
        joined += own[stride:]
    assert joined == list(whole[1:-1])
    assert len(joined) == num_words


@given(num_words=st.integers(OWN + 1, 600), stride=st.integers(0, MAX_TOKENS // 2))
def test_each_token_is_read_where_it_has_most_on_either_side(
    reader: InputReader, num_words: int, stride: int
) -> None:
    found = one(reader, words(num_words), stride)
    assert isinstance(found, Cut)

    def around(window: int, token: int) -> float:
        start, end = found.bounds[window]
        if not start <= token < end:
            return -1
        before = token - start if start else np.inf
        return min(before, end - 1 - token if end < num_words else np.inf)

    for token, owner in enumerate(found.owners().tolist()):
        all_around = [around(window, token) for window in range(len(found.windows))]
        assert all_around[owner] == max(all_around)
        assert owner == all_around.index(max(all_around))


def test_windows_know_their_characters_and_words(tmp_path: Path) -> None:
    tagger = load_bundle(write_task_bundle(tmp_path, Kind("token")))
    reader, text = InputReader(tagger.tokenizer_path, tagger.manifest), words(150)
    found = one(reader, text, 10)
    assert isinstance(found, Cut)
    for window, (start, end) in zip(found.windows, found.spans, strict=True):
        assert window.word_spans is not None
        assert window.word_spans.spans is not None
        assert window.counted is not None
        spans = window.word_spans.spans[window.counted]
        assert (start, end) == (spans[0, 0], spans[-1, 1])
        said = [text[s:e] for s, e in spans.tolist()]
        assert said == [window.word_spans.pieces[i] for i in np.flatnonzero(window.counted)]


def test_a_text_has_64_windows_at_most_and_a_bound_on_characters(reader: InputReader) -> None:
    most = OWN + (MAX_WINDOWS - 1) * (OWN - 8)
    found = one(reader, words(most), 8)
    assert isinstance(found, Cut)
    assert len(found.windows) == MAX_WINDOWS
    for text in (words(most + 1), "!" * (most + 1), " " * 262_144 + "a"):
        with pytest.raises(TextTooLong, match=r"^inputs\[0\] has "):
            one(reader, text, 8)


def test_pairs_and_ids_are_taken_as_without_windows_and_never_cut(reader: InputReader) -> None:
    pair, ids = Text("w1 w2", "w3"), Ids([2, 17, 3])
    for mine, plain in zip(
        reader.read_windows([pair, ids], 8), reader.read([pair, ids], False), strict=True
    ):
        assert isinstance(mine, Tokens)
        np.testing.assert_array_equal(mine.input_ids, plain.input_ids)
        np.testing.assert_array_equal(mine.token_type_ids, plain.token_type_ids)
    with pytest.raises(TextTooLong, match=r"^inputs\[1\] is a pair"):
        reader.read_windows([ids, Text(words(70), "w1")], 8)
    with pytest.raises(TextTooLong, match=r"^inputs\[0\] has"):
        reader.read_windows([Ids([17] * 70)], 8)
    with pytest.raises(InvalidRequest, match=r"^windows.stride: "):
        reader.read_windows([Text("w1")], OWN)
