"""The search: changed texts are run once through all exits, and every rule is asked about them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.errors import BenchFailed
from loadtest.evade.changes import FOUND, Change, changes
from models.quality.flag import flagged
from models.quality.recorded import Recorded, recorded
from models.quality.source import BundleSource
from serve.classifier.score_map import ScoreMap
from serve.rules import ExitRule
from serve.tokenization.tokenizer import Text

UNCHANGED = "unchanged"
# How many of the changes that worked for a rule are tried on all texts.
_MOST_FOUND = 20

Marks: TypeAlias = NDArray[np.bool_]


class Tried(NamedTuple):
    """A changed text: which text it was, what was done, and the column of the table it counts in.

    Attributes:
        source: place of the text.
        column: the kind of the change, `FOUND`, or `UNCHANGED`.
        change: None for the text itself.
    """

    source: int
    column: str
    change: Change | None


class Outcome(NamedTuple):
    """What a rule made of all that was tried.

    Attributes:
        layers: that the changed texts ran, in the mean.
        lost: by column, how many texts were answered otherwise than at full depth.
        counted: by column, of how many: with a flag those that full depth flags.
        evaded: how many of the original texts have at least one change that was lost.
        num_texts: how many there are.
        examples: changed texts that were lost.
    """

    layers: float
    lost: Mapping[str, int]
    counted: Mapping[str, int]
    evaded: int
    num_texts: int
    examples: list[str]


class Judge:
    """Tells what of a recording a rule answers otherwise than full depth.

    With a flag that is what full depth flags and the early answer does not.
    """

    def __init__(self, source: BundleSource, flag: Mapping[str, float] | None) -> None:
        self._flag, precision = flag, source.placement.precision
        self._scores = ScoreMap(source.bundle.score_temperatures(precision))

    def counted(self, found: Recorded) -> Marks:
        """Return (rows,) which texts count."""
        return self._flagged(found)[-1] if self._flag else np.ones(found.num_rows, np.bool_)

    def lost(self, found: Recorded, rules: Sequence[ExitRule]) -> list[Marks]:
        """Return for each rule (rows,) which of the texts that count are lost."""
        by_exit = self._flagged(found) if self._flag else None
        return [self._lost_by(found, rule, by_exit) for rule in rules]

    def _lost_by(self, found: Recorded, rule: ExitRule, by_exit: Marks | None) -> Marks:
        taken = found.taken(rule)
        if by_exit is None:
            agrees = found.agrees(taken)
            assert agrees is not None  # no regression comes here
            return ~agrees
        if not found.by_the_exits(taken):
            raise BenchFailed(f"{rule.text()} answers with several exits: leave --flag out for it")
        early: Marks = by_exit[taken.exits, np.arange(found.num_rows)]
        return by_exit[-1] & ~early

    def _flagged(self, found: Recorded) -> Marks:
        assert self._flag is not None
        return flagged(found, self._flag, self._scores)


def search(
    source: BundleSource,
    texts: Sequence[Text],
    judge: Judge,
    rules: Sequence[ExitRule],
    plan: tuple[Sequence[str], int, int],
) -> list[Outcome]:
    """Try changes on texts, then those that worked on all texts; return each rule's outcome.

    Args:
        source: the bundle.
        texts: to be changed; with a flag those that full depth flags.
        judge: tells what is lost.
        rules: to be evaded.
        plan: special tokens, how many changes of each kind each text gets, and the seed.
    """
    special, tries, seed = plan
    draw, words = np.random.default_rng(seed), [each.text for each in texts]
    tried = [Tried(place, UNCHANGED, None) for place in range(len(texts))]
    for place in range(len(texts)):
        own = changes(words, special, tries, draw)
        tried += [Tried(place, change.kind, change) for change in own]
    found = recorded(source, _written(tried, texts))
    lost = judge.lost(found, rules)
    best = list(dict.fromkeys(change for marks in lost for change in _best(tried, marks)))
    more = [Tried(place, FOUND, change) for change, place in product(best, range(len(texts)))]
    parts = [(tried, found, lost)]
    if more:
        again = recorded(source, _written(more, texts))
        parts.append((more, again, judge.lost(again, rules)))
    return [_outcome(parts, judge, rule, index, texts) for index, rule in enumerate(rules)]


def _written(tried: Sequence[Tried], texts: Sequence[Text]) -> list[Text]:
    return [_text(each, texts) for each in tried]


def _text(tried: Tried, texts: Sequence[Text]) -> Text:
    text = texts[tried.source]
    return text._replace(text=tried.change.of(text.text)) if tried.change else text


def _best(tried: Sequence[Tried], lost: Marks) -> Iterator[Change]:
    """Yield the changes that worked, those that worked most often first."""
    worked = Counter(tried[row].change for row in np.flatnonzero(lost).tolist())
    yield from (change for change, _ in worked.most_common(_MOST_FOUND + 1) if change)


def _outcome(
    parts: Sequence[tuple[Sequence[Tried], Recorded, list[Marks]]],
    judge: Judge,
    rule: ExitRule,
    index: int,
    texts: Sequence[Text],
) -> Outcome:
    lost, counted, layers = Counter[str](), Counter[str](), list[int]()
    evaded, examples = set[int](), list[str]()
    for tried, found, marks in parts:
        exits = np.array(found.traits.exits)
        layers += exits[found.taken(rule).exits].tolist()
        counted.update(tried[row].column for row in np.flatnonzero(judge.counted(found)).tolist())
        rows = [tried[row] for row in np.flatnonzero(marks[index]).tolist()]
        lost.update(each.column for each in rows)
        evaded |= {each.source for each in rows}
        examples += [_text(each, texts).text for each in rows if each.change]
    return Outcome(float(np.mean(layers)), lost, counted, len(evaded), len(texts), examples)
