"""Special tokens that are written in a text, in each family of tokenizers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from serve.bundle.loader import Bundle
from serve.errors import InvalidRequest
from serve.tokenization.inputs import Ids, InputReader
from serve.tokenization.plain_text import plain
from serve.tokenization.tokenizer import Text
from tests.support.tiny import MAX_TOKENS

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
LETTERS = sorted({*"".join((*BERT, *ROBERTA)).lower(), *"abcdxyz"})


def framed(tokenizer: Tokenizer, first: str, last: str) -> Tokenizer:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(each, tokenizer.token_to_id(each)) for each in (first, last)],
    )
    return tokenizer


def word_pieces(lowercase: bool, splits: bool) -> Tokenizer:
    vocabulary = [*BERT, *LETTERS, *(f"##{each}" for each in LETTERS)]
    places = {each: place for place, each in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(places, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    if splits:
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(BERT))
    return framed(tokenizer, "[CLS]", "[SEP]")


def unigram() -> Tokenizer:
    pieces = [*((each, 0.0) for each in ROBERTA), *((each, -9.0) for each in ["\u2581", *LETTERS])]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens([*ROBERTA[:4], AddedToken("<mask>", lstrip=True)])
    return framed(tokenizer, "<s>", "</s>")


def byte_pairs(ignore_merges: bool) -> Tokenizer:
    vocabulary = [*ROBERTA, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    places = {each: place for place, each in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.BPE(places, [], ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([*ROBERTA[:4], AddedToken("<mask>", lstrip=True)])
    tokenizer.add_tokens(["xyz"])
    return framed(tokenizer, "<s>", "</s>")


FAMILIES = {
    "WordPiece": word_pieces(lowercase=True, splits=True),
    "WordPiece of words": word_pieces(lowercase=False, splits=False),
    "Unigram": unigram(),
    "byte BPE": byte_pairs(ignore_merges=False),
    "byte BPE of words": byte_pairs(ignore_merges=True),
}
PLAIN = {name: plain(each, (*BERT, *ROBERTA)) for name, each in FAMILIES.items()}
of_families = pytest.mark.parametrize("family", FAMILIES)
# The wide ones become special tokens only when they are normalized.
WIDE = ["".join(chr(ord(sign) + 0xFEE0) for sign in each) for each in ("<s>", "SEP]")]
parts = st.sampled_from([*BERT, *ROBERTA, *WIDE, "a", "xyz", "b c", " ", "<", "[", "s>"])
texts = st.lists(parts, min_size=1, max_size=12).map("".join)
unknown = {"[UNK]", "<unk>"}  # of characters that the vocabulary lacks


@of_families
@given(text=texts)
def test_no_special_token_is_found_in_a_text_and_offsets_are_right(family: str, text: str) -> None:
    encoding = PLAIN[family].encode(text)
    special = {*BERT, *ROBERTA} - unknown
    inside = [
        (token, span)
        for token, mask, span in zip(
            encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True
        )
        if not mask
    ]
    assert not special & {token for token, _ in inside}
    assert (encoding.tokens[0], encoding.tokens[-1]) in {("[CLS]", "[SEP]"), ("<s>", "</s>")}
    for token, (start, end) in inside:
        found = token.removeprefix("##").strip("\u2581Ġ")
        if found.isascii() and found and token not in unknown:
            written = normalizers.NFKC().normalize_str(text[start:end]).strip()
            assert written.casefold() == found.casefold()


@of_families
@given(text=st.text(st.sampled_from("abcdxyz ."), min_size=1), pair=st.text(st.sampled_from("ab ")))
def test_texts_without_special_tokens_are_as_before(family: str, text: str, pair: str) -> None:
    for inputs in ((text,), (text, pair)):
        ours, before = (each[family].encode(*inputs) for each in (PLAIN, FAMILIES))
        for name in ("ids", "type_ids", "offsets", "tokens", "special_tokens_mask"):
            assert getattr(ours, name) == getattr(before, name)


def test_a_reader_does_so_in_whole_cut_and_windowed_texts(bundle: Bundle) -> None:
    reader = InputReader(bundle.tokenizer_path, bundle.manifest)
    pad, text = bundle.manifest.pad_id, Text("w1 [PAD] w2 [SEP] w3")
    special = {pad, *reader.read([text], truncate=False)[0].input_ids[[0, -1]].tolist()}
    long = Text(f"{text.text} " * 40)
    (cut,) = reader.read_windows([long], 4, plain=True)
    windows = cut.windows
    rows = [
        *reader.read([text, Text("w1", "[SEP] w2")], truncate=False, plain=True),
        *reader.read([long], truncate=True, plain=True),
        *windows,
    ]
    assert len(windows) > 3
    for row in rows:
        ids = row.input_ids.tolist()
        assert sum(each in special for each in ids) == 2 + row.token_type_ids.max()
        assert len(ids) <= MAX_TOKENS
    found = reader.read([text], truncate=False)[0].input_ids.tolist()
    assert pad in found
    with pytest.raises(InvalidRequest, match=r"^inputs\[7\]: "):
        reader.read([Ids([2, 3])], False, 7, plain=True)
