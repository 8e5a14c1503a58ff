"""Recording: texts run through all exits of a model, once."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.data.alignment import IGNORED, tag_tokens
from models.data.examples import Example, Target
from models.quality.answers import read_answers, right_answers
from models.quality.source import BundleSource, Source
from serve.classifier.score_map import ScoreMap
from serve.classifier.small_exits import SmallExits
from serve.engine.runner import StepOutput
from serve.rules.replay import Logits, Recording, Taken
from serve.rules.signals import decisions, probabilities
from serve.tokenization.inputs import pieces_of
from serve.tokenization.tokenizer import Text, Tokens

ROWS_PER_BATCH = 32

Ids: TypeAlias = NDArray[np.int64]
# The correct answers: (rows,) label ids or values; (rows, labels) 1 or 0; (rows, tokens) tag ids,
# `IGNORED` where no word begins.
Gold: TypeAlias = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Recorded(Recording):
    """What every exit of a model said of some texts.

    Attributes:
        num_tokens: (rows,) special ones included.
        gold: the correct answers; None where they are not known.
    """

    num_tokens: NDArray[np.intp] = field(kw_only=True)
    gold: Gold | None = field(default=None, kw_only=True)

    def of(self, rows: NDArray[np.intp] | slice) -> Self:
        """Return what was said of some of the texts."""
        return replace(
            self,
            logits=self.logits[:, rows],
            counted=None if self.counted is None else self.counted[rows],
            uncertainty=None if self.uncertainty is None else self.uncertainty[:, rows],
            num_tokens=self.num_tokens[rows],
            gold=None if self.gold is None else self.gold[rows],
        )

    @property
    def num_rows(self) -> int:
        """How many texts there are."""
        return len(self.num_tokens)

    @property
    def of_exits(self) -> Self:
        """What the exits said, without what is before them."""
        return replace(self, traits=self.traits.bare, logits=self.logits[self.traits.num_before :])

    @cached_property
    def answers(self) -> Ids | None:
        """(layers, rows) what every exit answers, as numbers that are equal where the answers are.

        An answer is a label, a set of labels, or all entities of a text, as they are served by
        default. A regression has none: values are never quite equal.
        """
        if self.traits.task == "regression":
            return None
        return np.stack([self.numbered(logits) for logits in self.logits])

    @cached_property
    def right(self) -> NDArray[np.bool_] | None:
        """(layers, rows) whether each exit's answer is correct; None if that cannot be said."""
        if self.gold is None or self.traits.task == "regression":
            return None
        return np.stack([right_answers(self.traits, each, self.gold) for each in self.logits])

    def same(self, tolerance: float | None = None) -> NDArray[np.bool_]:
        """Return (layers, rows) whether each exit gives full depth's answer.

        Args:
            tolerance: of a regression: values further apart differ; NaN is near nothing.
        """
        if self.answers is not None:
            return self.answers == self.answers[-1]
        values = self.logits[..., 0].astype(np.float64)
        return np.abs(values - values[-1]) <= (tolerance or 0.0)

    def agrees(self, taken: Taken) -> NDArray[np.bool_] | None:
        """Return (rows,) whether rows leave with full depth's answer; None for a regression."""
        if self.answers is None:
            return None
        if self.by_the_exits(taken):
            own = self.answers[taken.exits, np.arange(self.num_rows)]
        else:
            own = self.numbered(taken.deciding)
        return own == self.answers[-1]

    def by_the_exits(self, taken: Taken) -> bool:
        """Whether every row leaves with what the exit itself says, not with a vote or a mean."""
        own = self.logits[taken.exits, np.arange(self.num_rows)]
        return np.array_equal(own, taken.deciding, equal_nan=True)

    def numbered(self, logits: Logits) -> Ids:
        """Return (rows,) answers to the same texts as numbers, see `answers`."""
        known = self._known
        answers = read_answers(self.traits, logits, self.counted)
        return np.array([known.setdefault(answer, len(known)) for answer in answers], np.int64)

    @cached_property
    def _known(self) -> dict[Hashable, int]:
        return {}


def recorded(
    source: Source,
    texts: Sequence[Text],
    labels: Sequence[Target] | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Recorded:
    """Run every text through all exits, in batches of similar length; long texts are cut.

    Args:
        source: the model.
        texts: one or more.
        labels: the correct answers, if they are known.
        advance: called after each batch with its number of rows.

    Raises:
        InvalidRequest: a text has no tokens, or is a pair that the model does not take.
    """
    tokens = source.read(texts)
    found = _empty(source, tokens, None if labels is None else _gold(source, texts, labels, tokens))
    if source.table:
        found.logits[0] = source.table.of_texts([each.input_ids for each in tokens])
    if isinstance(source, BundleSource) and source.small:
        first = source.traits.num_before - len(source.small.traits.exits)
        found.logits[first : source.traits.num_before] = _in_front(source, source.small, texts)
    _run(source, tokens, found, advance)
    return found


def full_depth(source: Source, tokens: Sequence[Tokens], advance: Callable[[int], None]) -> Logits:
    """Return (rows, ...) what the last exit says of texts that are tokenized already."""
    found = _empty(source, tokens, None)
    _run(source, tokens, found, advance)
    return found.logits[-1]


def _in_front(large: BundleSource, small: BundleSource, texts: Sequence[Text]) -> Logits:
    """Return what every exit of the small model says; NaN of texts that it does not see."""
    exits = SmallExits(large.bundle)
    tokens = [own for piece in pieces_of(texts) for own in exits.read(piece, large.plain)]
    seen = [place for place, own in enumerate(tokens) if own]
    own_tokens = [own for own in tokens if own]
    found = _empty(small, own_tokens, None)
    _run(small, own_tokens, found, lambda rows: None)
    shape = len(small.traits.exits), len(texts), len(exits.order)
    logits = np.full(shape, np.nan, np.float32)
    logits[:, seen] = found.of_exits.logits[..., exits.order]
    return logits


def _run(
    source: Source, tokens: Sequence[Tokens], found: Recorded, advance: Callable[[int], None]
) -> None:
    """Put down what every exit says, in batches of similar length."""
    order = np.argsort(found.num_tokens, kind="stable")
    with source.running() as run:
        for start in range(0, len(order), ROWS_PER_BATCH):
            rows = order[start : start + ROWS_PER_BATCH]
            batch = _padded([tokens[i] for i in rows], source.pad_id)
            for index, output in enumerate(run(*batch)):
                _put(found, index, rows, output)
            advance(len(rows))


def shown_scores(
    recorded: Recorded, scores: ScoreMap, compared: Logits | None = None
) -> NDArray[np.float32]:
    """Return the score of every exit's answer, as a client sees it, and full depth's of the same.

    Of several labels there is a score for each; of tokens, one for the tag of each.

    Args:
        recorded: of a model that is no regression.
        scores: of the same exits.
        compared: logits of another model, whose scores take the place of full depth's.

    Returns:
        (2, layers, rows, parts): the exit's, and full depth's; NaN where a token does not count.
    """
    task = recorded.traits.task
    full = probabilities(task, recorded.logits[-1] if compared is None else compared)
    pairs = []
    for index, logits in enumerate(recorded.logits):
        own = probabilities(task, scores.logits(logits, index))
        pair = np.stack([own, full])
        if task != "multi_label":
            answer = np.maximum(decisions(task, logits), 0)[None, ..., None]
            pair = np.take_along_axis(pair, answer, axis=-1)
        if recorded.counted is not None:
            pair = np.where(recorded.counted[None, ..., None], pair, np.nan)[..., 0]
        pairs.append(pair)
    return np.stack(pairs, axis=1)


def score_gaps(
    recorded: Recorded, scores: ScoreMap, compared: Logits | None = None
) -> NDArray[np.float32]:
    """Return (layers, rows) the largest difference of a text's scores; see `shown_scores`."""
    own, full = shown_scores(recorded, scores, compared)
    gaps: NDArray[np.float32] = np.nan_to_num(np.abs(own - full)).max(axis=-1, initial=0)
    return gaps


def inputs(examples: Sequence[Example]) -> tuple[list[Text], list[Target]]:
    """Return the texts and the labels that `recorded` takes."""
    return [Text(e.text_a, e.text_b) for e in examples], [e.label for e in examples]


def _empty(source: Source, tokens: Sequence[Tokens], gold: Gold | None) -> Recorded:
    """Return a recording of the right shapes that holds zeros, and what counts."""
    traits, num_tokens = source.traits, _lengths(tokens)
    shape, counted = (len(traits.layers), len(tokens)), None
    inner: tuple[int, ...] = (len(traits.labels),)
    if traits.task == "token":
        counted = np.zeros((len(tokens), num_tokens.max(initial=0)), np.bool_)
        for row, each in enumerate(tokens):
            counted[row, : num_tokens[row]] = each.counted
        inner = (counted.shape[1], *inner)
    return Recorded(
        traits,
        source.temperatures,
        np.zeros((*shape, *inner), np.float32),
        counted,
        np.zeros((len(traits.exits), len(tokens)), np.float32) if traits.learned else None,
        num_tokens=num_tokens,
        gold=gold,
    )


def _gold(
    source: Source, texts: Sequence[Text], labels: Sequence[Target], tokens: Sequence[Tokens]
) -> Gold:
    if source.traits.task != "token":
        return np.array(labels)
    tagged = [
        (text.text, label if isinstance(label, list) else [])
        for text, label in zip(texts, labels, strict=True)
    ]
    gold = np.full((len(tokens), _lengths(tokens).max(initial=0)), IGNORED, np.int64)
    aligned = tag_tokens(source.tokenizer_path, tagged, source.max_tokens)
    for row, tags in enumerate(aligned):
        gold[row, : len(tags)] = tags
    return gold


def _put(found: Recorded, index: int, rows: NDArray[np.intp], output: StepOutput) -> None:
    logits = found.of_exits.logits[index]
    if found.counted is None:
        logits[rows] = output.logits
    else:
        logits[rows, : output.logits.shape[1]] = output.logits
    if found.uncertainty is not None and output.uncertainty is not None:
        found.uncertainty[index, rows] = output.uncertainty


def _lengths(tokens: Sequence[Tokens]) -> NDArray[np.intp]:
    return np.array([len(each.input_ids) for each in tokens], np.intp)


def _padded(rows: Sequence[Tokens], pad_id: int) -> tuple[Ids, Ids, Ids]:
    """Return ids, mask and types, each (rows, tokens)."""
    shape = len(rows), max(len(row.input_ids) for row in rows)
    ids, mask, types = np.full(shape, pad_id), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for place, row in enumerate(rows):
        length = len(row.input_ids)
        ids[place, :length], types[place, :length] = row.input_ids, row.token_type_ids
        mask[place, :length] = 1
    return ids, mask, types
