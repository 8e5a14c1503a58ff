"""Segments that cost nothing: logits are looked up by the row's first token."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.engine.row import Row
from serve.engine.runner import LEAVES, Gaps, Hidden, Ids, Step
from serve.rules import ExitRule, NeverRule

Heads = Callable[[int, int], Sequence[float]]  # (row's key, exit index) -> logits


class Run:
    """One segment run, as the runner saw it: exit index, keys of the rows, tokens."""

    def __init__(self, exit_index: int, keys: NDArray[np.int64], num_tokens: int) -> None:
        self.exit_index = exit_index
        self.keys = keys.tolist()
        self.num_tokens = num_tokens


class FakeRunner:
    """A `serve.engine.runner.Runner` whose hidden state is each row's token ids.

    So a row that gets another row's state, or loses a token to a wrong slice, is seen at once.

    Attributes:
        runs: what was run, in order.
    """

    def __init__(self, num_segments: int, heads: Heads) -> None:
        self.runs: list[Run] = []
        self._num_segments = num_segments
        self._heads = heads

    def __len__(self) -> int:
        return self._num_segments

    def start(self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids) -> Step:
        assert input_ids.shape == attention_mask.shape == token_type_ids.shape
        return self._step(0, input_ids, attention_mask)

    def advance(
        self, index: int, hidden: Hidden, keep: NDArray[np.int64], attention_mask: Ids
    ) -> Step:
        return self._step(index, hidden[keep, : attention_mask.shape[1]], attention_mask)

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        longest = max(tokens for *_, tokens in parts)
        joined = [
            np.pad(hidden[keep, :tokens], ((0, 0), (0, longest - tokens)))
            for hidden, keep, tokens in parts
        ]
        return np.concatenate(joined)

    def _step(self, index: int, ids: Ids, attention_mask: Ids) -> Step:
        assert ids.shape == attention_mask.shape
        keys = ids[:, 0]
        # Every token of a row repeats its key, and nothing but padding follows.
        assert (ids == keys[:, None] * attention_mask).all()
        self.runs.append(Run(index, keys, ids.shape[1]))
        logits = np.array([self._heads(int(key), index) for key in keys], np.float32)
        return Step(ids, logits)


class Call(NamedTuple):
    """One call of a runner that passes exits: the first exit, how many, and what let it go on."""

    first: int
    exits: int
    gaps: list[float] | None


class PassingFakeRunner(FakeRunner):
    """A `serve.engine.runner.PassingRunner` likewise.

    Attributes:
        calls: what was asked for, in order.
    """

    passes: Literal[True] = True

    def __init__(self, num_segments: int, heads: Heads) -> None:
        super().__init__(num_segments, heads)
        self.calls: list[Call] = []

    def start(
        self,
        input_ids: Ids,
        attention_mask: Ids,
        token_type_ids: Ids,
        gaps: Gaps | None = None,
    ) -> Step:
        step = super().start(input_ids, attention_mask, token_type_ids)
        return self._go_on(step, 0, attention_mask, gaps)

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        gaps: Gaps | None = None,
    ) -> Step:
        step = super().advance(index, hidden, keep, attention_mask)
        return self._go_on(step, index, attention_mask, gaps)

    def _go_on(self, step: Step, first: int, mask: Ids, gaps: Gaps | None) -> Step:
        if gaps is None:
            self.calls.append(Call(first, 1, None))
            return step
        assert gaps.shape == (len(self),)
        assert gaps.dtype == np.float32
        assert gaps[-1] <= 0, "nothing comes after the last"
        index, passed = first, []
        while gaps[index] == np.inf or _widest_gap(step.logits) < gaps[index]:
            if gaps[index] < np.inf:
                passed.append(step.logits)
            index += 1
            step = super().advance(index, step.hidden, np.arange(len(mask)), mask)
        exits = 1 + index - first
        self.calls.append(Call(first, exits, gaps.tolist()))
        hidden = None if gaps[index] == LEAVES else step.hidden
        asked = np.stack(passed) if passed else None
        return step._replace(hidden=hidden, exits=exits, passed=asked)


def _widest_gap(logits: NDArray[np.float32]) -> np.float32:
    """Return how far apart the two largest logits are, of any row; NaN if that is no number."""
    ordered = np.sort(logits, axis=1)
    with np.errstate(invalid="ignore"):
        widest: np.float32 = (ordered[:, -1] - ordered[:, -2]).max()
    return widest


class FakeSharedRunner(FakeRunner):
    """A `serve.engine.runner.MixedRunner` likewise; heads are asked by exit, layers without give
    NaN.

    Attributes:
        depths: of each run, how many layers each row had been through.
    """

    shared = True

    def __init__(self, exits: tuple[int, ...], heads: Heads) -> None:
        super().__init__(exits[-1], heads)
        self.depths: list[list[int]] = []
        self._exits = exits

    def start(self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids) -> Step:
        assert input_ids.shape == attention_mask.shape == token_type_ids.shape
        return Step(input_ids, np.full((len(input_ids), 2), np.nan, np.float32))

    def advance_mixed(
        self,
        depths: NDArray[np.int64],
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
    ) -> Step:
        ids = hidden[keep, : attention_mask.shape[1]]
        assert (ids == ids[:, :1] * attention_mask).all()
        assert len(depths) == len(ids)
        self.depths.append(depths.tolist())
        self.runs.append(Run(0, ids[:, 0], ids.shape[1]))
        logits = [self._logits(int(k), int(d) + 1) for k, d in zip(ids[:, 0], depths, strict=True)]
        return Step(ids, np.array(logits, np.float32))

    def _logits(self, key: int, layer: int) -> Sequence[float]:
        if layer not in self._exits:
            return (np.nan, np.nan)
        return self._heads(key, self._exits.index(layer))


def fake_row(key: int, num_tokens: int = 3, rule: ExitRule | None = None, **fields: object) -> Row:
    """Return a row that the fake runner knows by `key` (1 or more)."""
    ids = np.full(num_tokens, key, np.int64)
    return Row(ids, np.zeros_like(ids), rule or NeverRule(), tag=key, **fields)  # type: ignore[arg-type]
