from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve.bundle.loader import load_bundle
from serve.bundle.manifest import Manifest
from serve.errors import InvalidRequest, TextTooLong
from serve.tokenization.inputs import Ids, InputReader
from serve.tokenization.length_bounds import Text
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
    (tokens,) = new_reader(token_types=True).read([Ids([5, 6], [0, 1])], truncate=False)
    assert tokens.token_type_ids.tolist() == [0, 1]
    (tokens,) = new_reader().read([Ids([5, 6], [0, 0])], truncate=False)
    assert tokens.token_type_ids.tolist() == [0, 0]
    with pytest.raises(InvalidRequest, match=r"token_type_ids\[1\] is 1, but must be 0 for this"):
        new_reader().read([Ids([5, 6], [0, 1])], truncate=False)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            Ids([5, VOCAB_SIZE]),
            rf"inputs\[1\].input_ids\[1\] is {VOCAB_SIZE}, but must be from 0 to",
        ),
        (Ids([-1]), r"inputs\[1\].input_ids\[0\] is -1"),
        (Ids([]), r"inputs\[1\].input_ids must not be empty"),
        (Ids([5, 6], [0, 2]), r"inputs\[1\].token_type_ids\[1\] is 2, but must be from 0 to 1"),
        (Ids([5, 6], [0]), r"inputs\[1\].token_type_ids has 1 entries, input_ids has 2"),
    ],
)
def test_ids_that_the_model_has_not_are_refused_by_their_place(
    new_reader: NewReader, ids: Ids, message: str
) -> None:
    reader = new_reader(token_types=True)
    with pytest.raises(InvalidRequest, match=message):
        reader.read([Text("w1"), ids], truncate=True)


@pytest.mark.parametrize("truncate", [False, True])
def test_input_that_is_too_long_is_named_by_its_place_and_ids_are_never_cut(
    new_reader: NewReader, truncate: bool
) -> None:
    reader = new_reader()
    reader.read([Ids([5] * MAX_TOKENS)], truncate)
    with pytest.raises(TextTooLong, match=rf"inputs\[1\] has {MAX_TOKENS + 1} tokens, the model"):
        reader.read([Text("w1"), Ids([5] * (MAX_TOKENS + 1))], truncate)
    with pytest.raises(TextTooLong, match=r"inputs\[2\] has"):
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


def test_tokens_are_labelled_of_single_texts_only(new_reader: NewReader) -> None:
    reader = new_reader("token")
    assert not reader.takes_pairs
    with pytest.raises(
        InvalidRequest, match=r"inputs\[1\].text_pair: this model labels the tokens"
    ):
        reader.read([Text("w1"), Text("w1", "w2")], truncate=False)
    assert new_reader().read([Text("w1", "w2")], truncate=False)


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
