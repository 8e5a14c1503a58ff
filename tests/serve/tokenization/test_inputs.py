import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from serve.bundle.loader import load_bundle
from serve.bundle.manifest import Manifest
from serve.errors import InvalidRequest, TextTooLong
from serve.tokenization.inputs import PIECE_CHARS, Ids, InputReader, pieces_of
from serve.tokenization.tokenizer import Text
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.task_bundles import VOCAB_SIZE, Kind, write_task_bundle
from tests.support.tiny import MAX_TOKENS, tiny_tokenizer

CLS, SEP, PAD = 2, 3, 0
NewReader = Callable[..., InputReader]


@pytest.fixture
def new_reader(tmp_path: Path) -> NewReader:
    """Make readers of a task's inputs, with fields of the manifest changed."""

    def make(task: str = "single_label", **fields: Any) -> InputReader:
        folder = write_task_bundle(tmp_path, Kind(task), str(len(list(tmp_path.iterdir()))))  # type: ignore[arg-type]
        rewrite_manifest(folder, lambda manifest: manifest.update(fields))
        bundle = load_bundle(folder)
        return InputReader(bundle.tokenizer_path, bundle.manifest)

    return make


def test_texts_and_ids_may_be_mixed_and_keep_their_order(new_reader: NewReader) -> None:
    reader = new_reader()
    one, two = reader.read([Text("w1 w2"), Text("w3")], truncate=False)
    mixed = reader.read(
        [Ids(two.input_ids.tolist()), Text("w1 w2"), Ids(one.input_ids.tolist())], truncate=False
    )
    expected = [two.input_ids.tolist(), one.input_ids.tolist(), one.input_ids.tolist()]
    assert [tokens.input_ids.tolist() for tokens in mixed] == expected
    assert [tokens.token_type_ids.tolist() for tokens in mixed] == [[0] * len(e) for e in expected]


def test_token_types_are_taken_where_the_model_has_them(new_reader: NewReader) -> None:
    for types, token_types in (([0, 1], True), ([0, 0], False)):
        reader = new_reader(token_types=token_types)
        (tokens,) = reader.read([Ids([5, 6], types)], truncate=False)
        assert tokens.token_type_ids.tolist() == types


PAIRS = {"token_types": True}


@pytest.mark.parametrize(
    ("fields", "given", "place"),
    [
        (PAIRS, Ids([5, VOCAB_SIZE]), "inputs[1].input_ids[1] is"),
        (PAIRS, Ids([-1]), "inputs[1].input_ids[0] is"),
        (PAIRS, Ids([]), "inputs[1].input_ids must"),
        (PAIRS, Ids([5, 6], [0, 2]), "inputs[1].token_type_ids[1] is"),
        (PAIRS, Ids([5, 6], [0]), "inputs[1].token_type_ids has"),
        ({}, Ids([5, 6], [0, 1]), "inputs[1].token_type_ids[1] is"),
        ({"task": "token"}, Text("w1", "w2"), "inputs[1].text_pair:"),
    ],
)
def test_what_the_model_does_not_take_is_refused_by_its_place(
    new_reader: NewReader, fields: dict[str, Any], given: Ids | Text, place: str
) -> None:
    reader = new_reader(**fields)
    with pytest.raises(InvalidRequest, match=f"^{re.escape(place)} "):
        reader.read([Text("w1"), given], truncate=True)
    assert reader.takes_pairs == ("task" not in fields)


@pytest.mark.parametrize("truncate", [False, True])
def test_input_that_is_too_long_is_named_by_its_place_and_ids_are_never_cut(
    new_reader: NewReader, truncate: bool
) -> None:
    reader = new_reader()
    reader.read([Ids([5] * MAX_TOKENS)], truncate)
    with pytest.raises(TextTooLong, match=r"^inputs\[1\] has"):
        reader.read([Text("w1"), Ids([5] * (MAX_TOKENS + 1))], truncate)
    with pytest.raises(TextTooLong, match=r"^inputs\[2\] has"):
        reader.read([Ids([5]), Text("w1"), Text("w1 " * 100)], truncate=False)


def test_the_manifest_may_know_of_more_or_fewer_ids_than_the_tokenizer(
    new_reader: NewReader,
) -> None:
    assert new_reader().vocab_size == VOCAB_SIZE
    assert new_reader(vocab_size=250).vocab_size == 250
    new_reader(vocab_size=250).read([Ids([249])], truncate=False)
    assert new_reader(token_types=True, type_vocab_size=1).num_types == 1
    assert (new_reader(token_types=True).num_types, new_reader().num_types) == (2, 1)


def test_what_a_tokenizer_frames_texts_with_does_not_count(new_reader: NewReader) -> None:
    reader = new_reader("token")
    text, ids = reader.read([Text("w1 w2"), Ids([CLS, 5, SEP, 6, PAD, 1])], truncate=False)
    assert text.counted is not None
    assert ids.counted is not None
    assert text.counted.tolist() == [False, True, True, False]
    # The unknown token, 1, stands for a word.
    assert ids.counted.tolist() == [False, True, False, True, False, True]


def test_only_token_classification_has_word_spans_and_counts(new_reader: NewReader) -> None:
    for tokens in new_reader().read([Text("w1"), Ids([5])], truncate=False):
        assert (tokens.counted, tokens.word_spans) == (None, None)
    text, ids = new_reader("token").read([Text("w1 ww"), Ids([4, 5])], truncate=False)
    assert text.word_spans is not None
    assert ids.word_spans is not None
    assert text.word_spans.pieces == ["[CLS]", "w1", "ww", "[SEP]"]  # the unknown as it was
    assert text.word_spans.spans is not None
    assert text.word_spans.spans.tolist() == [[0, 0], [0, 2], [3, 5], [0, 0]]
    assert (ids.word_spans.pieces, ids.word_spans.spans) == (["w0", "w1"], None)


def test_a_tokenizer_without_special_tokens_frames_nothing(
    new_reader: NewReader, tmp_path: Path
) -> None:
    bare = tiny_tokenizer()
    bare.post_processor = None  # type: ignore[assignment]
    path = tmp_path / "bare.json"
    bare.save(str(path))
    folder = write_task_bundle(tmp_path, Kind("token"))
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    (tokens,) = InputReader(path, manifest).read([Ids([CLS, 5, PAD])], truncate=False)
    assert tokens.counted is not None
    assert tokens.counted.tolist() == [True, True, False]


@drawn(st.lists(st.integers(1, 2 * PIECE_CHARS), max_size=30))
def test_pieces_hold_every_input_once_and_no_more_than_their_bound(sizes: list[int]) -> None:
    inputs = [Text("x" * size) for size in sizes]
    pieces = list(pieces_of(inputs))
    assert [text for piece in pieces for text in piece] == inputs
    for piece in pieces:
        assert len(piece) == 1 or sum(len(text.text) for text in piece) <= PIECE_CHARS
