"""Tokenizes the inputs of requests: short ones at once, long ones in pieces on threads."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeAlias, TypeVar

from tokenizers import Encoding

from serve.classifier.classification import Classification
from serve.classifier.small_exits import SmallExits
from serve.classifier.windowed import num_windows
from serve.engine.engine import Engine
from serve.errors import DeadlineExceeded, TextTooLong, TooManyInputs
from serve.tokenization.inputs import Ids, Input, InputReader, pieces_of, size_of
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut

# What is longer is tokenized on a thread: the event loop must stay free. The library takes longest
# for words of a hundred letters, 2 to 5 ms for so many characters; for usual ones 0.15 ms. The way
# to a thread and back takes 0.1 ms.
MAX_INLINE_CHARS = 500
# Token ids are only copied.
MAX_INLINE_IDS = 10_000

Shown = TypeVar("Shown")
Texts: TypeAlias = Sequence[Tokens | Cut]


class RequestTokenizer:
    """Tokenizes for one model. Belongs to the event loop."""

    def __init__(
        self,
        inputs: InputReader,
        engine: Engine,
        observe: Callable[[float], None],
        pool: Executor,
    ) -> None:
        """Start with no request.

        Args:
            inputs: reads texts and ids.
            engine: has the clock, and knows the room in its queue.
            observe: is told how long each request took, in seconds.
            pool: tokenizes long texts.
        """
        self._inputs, self._engine = inputs, engine
        self._observe, self._pool = observe, pool
        self._tokens_coming = 0  # of requests that are being tokenized in pieces

    async def tokenize(self, request: Classification) -> Texts:
        """Return the inputs' tokens, and note in the request when they were made.

        Raises:
            OfframpError: of the inputs, the deadline, or the room in the queue.
        """
        began_s = self._engine.clock()
        if _is_short(request.inputs):
            texts = self._read(request, request.inputs)
            if request.windows:
                _check_rows(request, _num_rows(texts))
        else:
            texts = await self._in_pieces(request)
        ended_s = self._engine.clock()
        self._observe(ended_s - began_s)
        request.tokenized = began_s, ended_s
        return texts

    async def read_in_front(
        self, exits: SmallExits, request: Classification, inputs: Sequence[Input]
    ) -> list[Tokens | None]:
        """Return the tokens of inputs for the small model in front, see `SmallExits.read`.

        Raises:
            DeadlineExceeded: the request has expired meanwhile.
        """
        plain = request.special_tokens == "text"
        if _is_short(inputs):
            return exits.read(inputs, plain)
        found, loop = list[Tokens | None](), asyncio.get_running_loop()
        for piece in pieces_of(inputs):
            if request.deadline_s <= self._engine.clock():
                raise DeadlineExceeded
            found += await loop.run_in_executor(self._pool, exits.read, piece, plain)
        return found

    async def encode(
        self, texts: Sequence[str], special_tokens: bool, show: Callable[[list[Encoding]], Shown]
    ) -> Shown:
        """Return what `show` makes of the encodings of texts, which may be long for the model.

        Both run on one thread of the pool: an encoding takes a hundred times as much memory as its
        text, and none waits for a thread.

        Args:
            texts: of a few ten thousand characters together, which are tokenized at once.
            special_tokens: whether those that the model needs are added.
            show: is called with the tokenizer's encodings.

        Raises:
            InvalidRequest: a text cannot be tokenized.
        """

        def encode_and_show() -> Shown:
            return show(self._inputs.encode(texts, special_tokens))

        return await asyncio.get_running_loop().run_in_executor(self._pool, encode_and_show)

    async def _in_pieces(self, request: Classification) -> list[Tokens | Cut]:
        """Tokenize on the pool; other requests take turns with the pieces of this one.

        A request that is cancelled, expired or too large for the queue ends after a piece.
        """
        loop, client = asyncio.get_running_loop(), request.client.identity
        texts, num_rows, num_tokens = list[Tokens | Cut](), 0, 0
        try:
            for piece in pieces_of(request.inputs):
                task = partial(self._read_in_time, request, piece, len(texts))
                read = await loop.run_in_executor(self._pool, task)
                texts += read
                num_rows += _num_rows(read)
                read_tokens = _num_tokens(read)
                num_tokens += read_tokens
                request.num_tokens = num_tokens
                self._tokens_coming += read_tokens
                others = self._tokens_coming - num_tokens
                coming_rows = num_rows + len(request.inputs) - len(texts)
                _check_rows(request, coming_rows)
                self._engine.check_room(coming_rows, num_tokens, client, others)
        finally:
            self._tokens_coming -= num_tokens
        return texts

    def _read_in_time(self, request: Classification, piece: Sequence[Input], first: int) -> Texts:
        if request.deadline_s <= self._engine.clock():
            raise DeadlineExceeded
        return self._read(request, piece, first)

    def _read(self, request: Classification, inputs: Sequence[Input], first: int = 0) -> Texts:
        plain, windows = request.special_tokens == "text", request.windows
        try:
            if windows is None:
                return self._inputs.read(inputs, request.asked.truncate, first, plain)
            return self._inputs.read_windows(inputs, windows.stride, first, plain)
        except TextTooLong as error:
            request.num_tokens += error.num_tokens
            raise


def _is_short(inputs: Sequence[Input]) -> bool:
    chars = ids = 0
    for given in inputs:
        if isinstance(given, Ids):
            ids += len(given.input_ids)
        else:
            chars += size_of(given)
    return chars <= MAX_INLINE_CHARS and ids <= MAX_INLINE_IDS


def _num_rows(texts: Texts) -> int:
    return sum(map(num_windows, texts))


def _num_tokens(texts: Texts) -> int:
    rows = (text.windows if isinstance(text, Cut) else (text,) for text in texts)
    return sum(len(row.input_ids) for of_text in rows for row in of_text)


def _check_rows(request: Classification, num_rows: int) -> None:
    if request.max_rows is not None and num_rows > request.max_rows:
        raise TooManyInputs(
            f"inputs: {num_rows} texts and windows of them, at most {request.max_rows} per request"
        )
