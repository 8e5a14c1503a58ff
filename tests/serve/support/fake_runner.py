"""Segments that cost nothing: logits are looked up by the row's first token."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.engine.row import Row
from serve.engine.runner import Hidden, Ids
from serve.rules import ExitRule, NeverRule, compile_rule
from serve.rules.traits import Traits
from tests.support.traits import two_labels

Heads = Callable[[int, int], Sequence[float]]  # (row's key, exit index) -> logits


class Run:
    """One call of the runner: first segment, exit, keys of the rows, tokens."""

    def __init__(self, index: int, until: int, keys: NDArray[np.int64], num_tokens: int) -> None:
        self.index, self.exit_index = index, until
        self.keys = keys.tolist()
        self.num_tokens = num_tokens


class _Output(NamedTuple):
    """What a run gives, which tells when it is read."""

    hidden: Ids
    values: NDArray[np.float32]
    read: Callable[[], None]
    uncertainty: None = None

    @property
    def logits(self) -> NDArray[np.float32]:
        self.read()
        return self.values


class FakeRunner:
    """A `ModelRunner` whose hidden state is each row's token ids.

    A row that gets another row's state, or loses a token to a wrong slice, is seen at once.

    Attributes:
        runs: what was run, in order.
        queued: called at each run.
        read: called when its output is read.
    """

    queued: Callable[[], None] = staticmethod(lambda: None)
    read: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, num_segments: int, heads: Heads) -> None:
        self.runs: list[Run] = []
        self._num_segments = num_segments
        self._heads = heads

    def __len__(self) -> int:
        return self._num_segments

    def start(
        self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids, until: int = 0
    ) -> _Output:
        assert input_ids.shape == attention_mask.shape == token_type_ids.shape
        return self._step(0, until, input_ids, attention_mask)

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        until: int | None = None,
    ) -> _Output:
        ids = hidden[keep, : attention_mask.shape[1]]
        return self._step(index, index if until is None else until, ids, attention_mask)

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        longest = max(tokens for *_, tokens in parts)
        joined = [
            np.pad(hidden[keep, :tokens], ((0, 0), (0, longest - tokens)))
            for hidden, keep, tokens in parts
        ]
        return np.concatenate(joined)

    def _step(self, index: int, until: int, ids: Ids, attention_mask: Ids) -> _Output:
        assert ids.shape == attention_mask.shape
        assert index <= until < self._num_segments
        keys = ids[:, 0]
        # Every token of a row repeats its key, and nothing but padding follows.
        assert (ids == keys[:, None] * attention_mask).all()
        self.runs.append(Run(index, until, keys, ids.shape[1]))
        self.queued()
        logits = np.array([self._heads(int(key), until) for key in keys], np.float32)
        return _Output(ids, logits, self.read)


def fake_row(
    key: int,
    num_tokens: int = 3,
    rule: ExitRule | None = None,
    exits: Sequence[int] = (1, 2, 3, 4, 5, 6),
    temperatures: tuple[float, ...] = (),
    traits: Traits | None = None,
    **fields: object,
) -> Row:
    """Return a row that the fake runner knows by `key` (1 or more); by default of two labels."""
    ids = np.full(num_tokens, key, np.int64)
    compiled = compile_rule(rule or NeverRule(), traits or two_labels(exits), temperatures)
    return Row(ids, np.zeros_like(ids), compiled, tag=key, **fields)  # type: ignore[arg-type]
