"""Turns the inputs of a request, texts or token ids, into tokens that the model takes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from serve.bundle.manifest import Manifest
from serve.errors import InvalidBundle, InvalidRequest, TextTooLong
from serve.tokenization.tokenizer import Text, TextEncoder, Tokens, encode_batch
from serve.tokenization.windows import Cut, WindowBounds, cut
from serve.tokenization.word_spans import WordSpanFinder

# A request is tokenized in pieces of so many characters. A thread takes some 20 ms for each.
PIECE_CHARS = 65_536


class Ids(NamedTuple):
    """One input that the client has tokenized: special tokens included, no padding."""

    input_ids: Sequence[int]
    token_type_ids: Sequence[int] | None = None


Input: TypeAlias = Text | Ids


def size_of(given: Input) -> int:
    """Return the characters or token ids of an input."""
    if isinstance(given, Ids):
        return len(given.input_ids)
    return len(given.text) + len(given.text_pair or "")


def pieces_of(inputs: Sequence[Input]) -> Iterator[Sequence[Input]]:
    """Yield the inputs in pieces, in order, each of at most `PIECE_CHARS` or of one input."""
    first, size = 0, 0
    for place, given in enumerate(inputs):
        if size + size_of(given) > PIECE_CHARS and place > first:
            yield inputs[first:place]
            first, size = place, 0
        size += size_of(given)
    yield inputs[first:]


class InputReader:
    """Turns the inputs of one model's requests into tokens. Calls may come from several threads.

    Attributes:
        word_span_finder: for token classification.
        takes_pairs: whether an input may be a pair of texts.
        vocab_size: token ids are below it.
        num_types: token types are below it.
    """

    def __init__(self, tokenizer_path: Path, manifest: Manifest) -> None:
        """Load the tokenizer.

        Raises:
            InvalidBundle: its file cannot be read, or it has ids that the model does not have.
        """
        self._labels_tokens = manifest.task == "token"
        self._texts = TextEncoder(tokenizer_path, manifest.max_tokens, self._labels_tokens)
        tokenizer = self._texts.tokenizer
        self.word_span_finder = WordSpanFinder(tokenizer)
        self.takes_pairs = not self._labels_tokens
        known = max(tokenizer.get_vocab().values(), default=-1) + 1
        self.vocab_size = manifest.vocab_size or known
        if max(known, manifest.pad_id + 1) > self.vocab_size:
            raise InvalidBundle(
                f"{tokenizer_path} and pad_id have ids up to {max(known - 1, manifest.pad_id)}; "
                f"the manifest's vocab_size is {self.vocab_size}, and ids must be below it"
            )
        self.num_types = manifest.type_vocab_size if manifest.token_types else 1
        self._special = np.array([*_special_ids(tokenizer), manifest.pad_id])
        self._plain_texts: TextEncoder | None = None
        self._num_special = tokenizer.num_special_tokens_to_add(False)

    def read(
        self, inputs: Sequence[Input], truncate: bool, first: int = 0, plain: bool = False
    ) -> list[Tokens]:
        """Return the inputs' tokens, in order.

        Args:
            inputs: texts and token ids, in any mixture.
            truncate: cut texts that are too long (of a pair, the longer text first). Token ids
                are never cut.
            first: place of the first of them in the request.
            plain: read special tokens in texts as characters; refuse token ids.

        Raises:
            TextTooLong: an input has more tokens than the model takes; the message names its
                place.
            InvalidRequest: an input cannot be tokenized, is empty, has ids that the model does
                not have, or is a pair that the model does not take.
        """
        texts = {place: text for place, text in enumerate(inputs, first) if isinstance(text, Text)}
        if not self.takes_pairs:
            _refuse_pairs(texts)
        encodings = self._encoder(plain).encodings(texts, truncate) if texts else {}
        return [
            self._of_ids(place, given, plain)
            if isinstance(given, Ids)
            else self._of_text(given.text, encodings[place])
            for place, given in enumerate(inputs, first)
        ]

    def encode(self, texts: Sequence[str], special_tokens: bool) -> list[Encoding]:
        """Return the library's encodings of texts of any length.

        Raises:
            InvalidRequest: a text cannot be tokenized.
        """
        return encode_batch(self._texts.tokenizer, texts, special_tokens)

    def read_windows(
        self, inputs: Sequence[Input], stride: int, first: int = 0, plain: bool = False
    ) -> list[Tokens | Cut]:
        """Return the inputs' tokens, in order; texts that are too long are cut into windows.

        Args:
            inputs: texts and token ids, in any mixture.
            stride: tokens that two windows share.
            first: place of the first input in the request.
            plain: as in `read`.

        Raises:
            TextTooLong: a pair or token ids are longer than the model takes, or a text has too
                many windows; the message names its place.
            InvalidRequest: as in `read`, or the windows would share all of their tokens.
        """
        texts = self._encoder(plain)
        bounds = WindowBounds(texts.max_tokens, self._num_special, stride)
        singles = {}
        for place, given in enumerate(inputs, first):
            if isinstance(given, Text) and given.text_pair is None:
                bounds.check(place, len(given.text))
                singles[place] = given
        encodings = texts.whole(singles) if singles else {}
        return [
            self._in_windows(place, given, encodings[place], bounds)
            if isinstance(given, Text) and place in encodings
            else self._uncut(place, given, plain)
            for place, given in enumerate(inputs, first)
        ]

    def _in_windows(
        self, place: int, given: Text, encoding: Encoding, bounds: WindowBounds
    ) -> Tokens | Cut:
        whole = self._of_text(given.text, encoding)
        if len(encoding) <= self._texts.max_tokens:
            return whole
        return cut(place, encoding, whole, bounds)

    def _encoder(self, plain: bool) -> TextEncoder:
        if not plain:
            return self._texts
        if self._plain_texts is None:
            tokenizer = self._texts.tokenizer
            added = tokenizer.get_added_tokens_decoder().values()
            special = {token.content for token in added if token.special}
            special |= {tokenizer.id_to_token(token) or "" for token in self._special.tolist()}
            self._plain_texts = self._texts.plain(special)
        return self._plain_texts

    def _uncut(self, place: int, given: Input, plain: bool) -> Tokens:
        """Return the tokens of a pair or of ids, of which no windows are cut."""
        try:
            return self.read([given], False, place, plain)[0]
        except TextTooLong:
            if isinstance(given, Ids):
                raise
            raise TextTooLong(
                f"inputs[{place}] is a pair of more than {self._texts.max_tokens} tokens, and "
                "windows are cut of single texts only; shorten it"
            ) from None

    def _of_text(self, text: str, encoding: Encoding) -> Tokens:
        tokens = Tokens.of(encoding)
        if not self._labels_tokens:
            return tokens
        counted = np.array(encoding.special_tokens_mask) == 0
        return tokens._replace(
            counted=counted, word_spans=self.word_span_finder.of_text(text, encoding)
        )

    def _of_ids(self, place: int, given: Ids, plain: bool = False) -> Tokens:
        where = f"inputs[{place}]"
        if plain:
            raise InvalidRequest(
                f"{where}: token ids may be special tokens, and special_tokens says that there are "
                'none; send the text, or "special_tokens": "ids"'
            )
        self._check_length(where, len(given.input_ids))
        ids = np.array(given.input_ids, np.int64)
        _check_range(f"{where}.input_ids", ids, self.vocab_size)
        types = np.zeros_like(ids)
        if given.token_type_ids is not None:
            num_types = len(given.token_type_ids)
            if num_types != len(ids):
                raise InvalidRequest(
                    f"{where}.token_type_ids has {num_types} entries, input_ids has {len(ids)}; "
                    "send one for each"
                )
            types = np.array(given.token_type_ids, np.int64)
            _check_range(f"{where}.token_type_ids", types, self.num_types)
        if not self._labels_tokens:
            return Tokens(ids, types)
        counted = ~np.isin(ids, self._special)
        return Tokens(ids, types, counted, self.word_span_finder.of_ids(given.input_ids))

    def _check_length(self, where: str, num_tokens: int) -> None:
        if not num_tokens:
            raise InvalidRequest(f"{where}.input_ids must not be empty")
        if num_tokens > self._texts.max_tokens:
            raise TextTooLong(
                f"{where} has {num_tokens} tokens, the model takes {self._texts.max_tokens}; "
                "shorten it: token ids are not cut here"
            )


def _check_range(where: str, values: NDArray[np.int64], size: int) -> None:
    wrong = np.flatnonzero((values < 0) | (values >= size))
    if len(wrong):
        first = wrong[0]
        allowed = f"from 0 to {size - 1}" if size > 1 else "0"
        raise InvalidRequest(
            f"{where}[{first}] is {values[first]}, but must be {allowed} for this model"
        )


def _refuse_pairs(texts: dict[int, Text]) -> None:
    for place, text in texts.items():
        if text.text_pair is not None:
            raise InvalidRequest(
                f"inputs[{place}].text_pair: this model labels the tokens of single texts; "
                "send two inputs"
            )


def _special_ids(tokenizer: Tokenizer) -> set[int]:
    """Return the ids that the tokenizer puts around texts."""
    empty = (tokenizer.encode(""), tokenizer.encode("", ""))
    return {
        token
        for encoding in empty
        for token, special in zip(encoding.ids, encoding.special_tokens_mask, strict=True)
        if special
    }
