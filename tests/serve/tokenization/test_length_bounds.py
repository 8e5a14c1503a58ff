from functools import cache
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel, Metaspace

from serve.bundle.loader import Bundle
from serve.errors import TextTooLong
from serve.tokenization.inputs import pieces_of
from serve.tokenization.length_bounds import CHARS_PER_TOKEN, PIECE_CHARS, LengthBounds, Text
from serve.tokenization.tokenizer import TextEncoder
from serve.tokenization.windows import WindowBounds
from serve.tokenization.words_per_token import words_per_token
from tests.support.tiny import MAX_TOKENS, WORDS, tiny_tokenizer

SHIPPED = Path(__file__).parents[3] / "models/zoo/sst2-minilm/tokenizer.json"
CITIES = [
    AddedToken("New York"),
    AddedToken("rio de janeiro", lstrip=True, single_word=True),
    AddedToken("a\u00a0b c", rstrip=True, normalized=False),
    AddedToken("k x m", special=True),
]
of_tokenizers = pytest.mark.parametrize("name", ["tiny", "shipped", "cities", "bytes", "pieces"])
MOST_CHARS = CHARS_PER_TOKEN * MAX_TOKENS
# Spaces of all kinds, characters that tokenizers drop, words that are several tokens, and scripts
# that are written without spaces.
ODD = [
    " ",
    "  ",
    "\n",
    "\u00a0",
    "\u2003",
    "\x1c",
    "\u200b",
    "\u0301",
    "é",
    "don't",
    "中文",
    "🎬",
    "!?",
]
CITY_TEXTS = [
    "New York",
    "new york",
    "Rio de Janeiro",
    "a\u00a0b c",
    "k x m",
    "York",
    "de",
    "ok x me",
]
ordinary = st.lists(st.sampled_from([*WORDS[:9], *ODD, *CITY_TEXTS]), min_size=1, max_size=30)
separators = st.sampled_from([" ", "\t", "\n", " \u200b ", ", ", "\u2003"])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw texts from one word to a few times what the model takes."""
    words = draw(ordinary) * draw(st.integers(1, 20))
    return draw(separators).join(words)


def byte_pairs() -> Tokenizer:
    signs = sorted(ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({sign: i for i, sign in enumerate(signs)}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return tokenizer


def pieces() -> Tokenizer:
    vocabulary = [("<unk>", 0.0), ("\u2581", -1.0), ("\u2581New", -1.0), ("w", -1.0)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0))
    spaces = normalizers.Replace(Regex(" {2,}"), "\u2581")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), spaces])
    tokenizer.pre_tokenizer = Metaspace()
    return tokenizer


MAKE = {
    "tiny": tiny_tokenizer,
    "shipped": lambda: Tokenizer.from_file(str(SHIPPED)),
    "cities": tiny_tokenizer,
    "bytes": byte_pairs,
    "pieces": pieces,
}


def bounds(name: str) -> LengthBounds:
    return LengthBounds(MAX_TOKENS, words_per_token(tokenizer(name, False)))


@cache
def tokenizer(name: str, truncate: bool) -> Tokenizer:
    tokenizer = MAKE[name]()
    if name not in ("tiny", "shipped"):
        tokenizer.add_tokens(CITIES)
    if truncate:
        tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def num_tokens(name: str, text: str) -> int:
    return len(tokenizer(name, False).encode(text, add_special_tokens=False))


def told(tokenizer: Tokenizer, *texts: str) -> object:
    encoding = tokenizer.encode(*texts)
    return encoding.ids, encoding.type_ids, encoding.offsets, encoding.special_tokens_mask


@of_tokenizers
@given(text=texts())
def test_a_text_that_is_cut_first_has_the_tokens_and_offsets_of_the_whole(
    name: str, text: str
) -> None:
    assume(len(text) <= MOST_CHARS)
    cut = bounds(name).cut(Text(text)).text
    assert text.startswith(cut)
    assert told(tokenizer(name, True), cut) == told(tokenizer(name, True), text)


@of_tokenizers
@given(one=texts(), two=texts())
def test_a_pair_that_is_cut_first_has_the_tokens_of_the_whole(
    name: str, one: str, two: str
) -> None:
    """If both texts alone are too long, either may get the token that cannot be halved."""
    assume(max(len(one), len(two)) <= MOST_CHARS)
    first, second = bounds(name).cut(Text(one, two))
    assert second is not None
    found, whole = (tokenizer(name, True).encode(*pair) for pair in ((first, second), (one, two)))
    if min(num_tokens(name, one), num_tokens(name, two)) <= MAX_TOKENS:
        assert (found.ids, found.type_ids) == (whole.ids, whole.type_ids)
    assert len(found.ids) == len(whole.ids)
    assert abs(sum(found.type_ids) - sum(whole.type_ids)) <= 1


@of_tokenizers
@given(text=texts())
def test_a_text_that_fits_is_never_refused(name: str, text: str) -> None:
    assume(len(text) <= MOST_CHARS)
    if len(tokenizer(name, False).encode(text)) <= MAX_TOKENS:
        bounds(name).check(0, Text(text))
        WindowBounds(MAX_TOKENS, 0, 0, words_per_token(tokenizer(name, False))).check(0, text)


def changed(**parts: object) -> Tokenizer:
    tokenizer = tiny_tokenizer()
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (tokenizer("tiny", False), 1),
        (tokenizer("shipped", False), 1),
        (tokenizer("cities", False), 3),
        (tokenizer("bytes", False), 3),
        (tokenizer("pieces", False), 3),
        (changed(normalizer=normalizers.Replace(Regex(r"\d+"), "")), None),
        (changed(normalizer=normalizers.Replace(" ", "")), None),
        (changed(normalizer=normalizers.Replace(" ", "\u2581")), None),
        (changed(normalizer=normalizers.Replace("``", '"')), 1),
        (changed(pre_tokenizer=Metaspace(split=False)), None),
        (changed(pre_tokenizer=ByteLevel(use_regex=False)), None),
        (changed(pre_tokenizer=pre_tokenizers.Split("w", "removed")), None),
        (changed(pre_tokenizer=pre_tokenizers.Punctuation("removed")), None),
        (changed(model=models.BPE({"a": 0}, [])), None),
        (changed(model=models.BPE({"a": 0}, [], unk_token="a")), 1),
    ],
)
def test_words_of_a_token_are_counted_where_all_words_have_one(
    made: Tokenizer, expected: int | None
) -> None:
    assert words_per_token(made) == expected


def test_without_a_bound_on_words_characters_bound_a_text() -> None:
    bounds = LengthBounds(MAX_TOKENS, None)
    words = Text("w1 " * 1000)
    bounds.check(0, words)
    assert bounds.cut(words) == words
    with pytest.raises(TextTooLong, match="characters"):
        bounds.check(0, Text("w1 " * MOST_CHARS))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (Text("x" * (MOST_CHARS + 1)), f"has {MOST_CHARS + 1} characters"),
        (Text("!" * MOST_CHARS, "!"), f"has {MOST_CHARS + 1} characters"),
        (Text("w1 " * (MAX_TOKENS + 1)), f"has more than {MAX_TOKENS} words"),
        (Text("w1 " * 40, "w1 " * 40), f"has more than {MAX_TOKENS} words"),
    ],
)
def test_a_text_that_is_surely_too_long_is_refused_before_it_is_tokenized(
    text: Text, message: str, bundle: Bundle
) -> None:
    encoder = TextEncoder(bundle.tokenizer_path, MAX_TOKENS)
    encoder.tokenizer = Mock(encode_batch=Mock(side_effect=AssertionError))
    with pytest.raises(TextTooLong, match=rf'inputs\[1\] {message}.*"truncate": true'):
        encoder.encode([Text("w1"), text])


def test_of_a_giant_text_the_tokenizer_sees_its_beginning(bundle: Bundle) -> None:
    encoder = TextEncoder(bundle.tokenizer_path, MAX_TOKENS)
    real, seen = encoder._truncating, []

    def encode_batch(batch: list[str], **options: bool) -> object:
        seen.extend(map(len, batch))
        return real.encode_batch(batch, **options)

    encoder._truncating = Mock(encode_batch=encode_batch)
    giants = ["x" * 10**6, "!" * 10**6, "w1 " * 10**6]
    assert len(encoder.encode([Text(t) for t in giants], truncate=True)) == 3
    assert seen == [MOST_CHARS, MOST_CHARS, 3 * MAX_TOKENS + 2]


@given(st.lists(st.integers(1, 2 * PIECE_CHARS), max_size=30))
def test_pieces_hold_every_input_once_and_no_more_than_their_bound(sizes: list[int]) -> None:
    inputs = [Text("x" * size) for size in sizes]
    pieces = list(pieces_of(inputs))
    assert [text for piece in pieces for text in piece] == inputs
    for piece in pieces:
        assert len(piece) == 1 or sum(len(text.text) for text in piece) <= PIECE_CHARS
