"""What texts are answered with, compared with full depth's answers, as the server compares them."""

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.classifier.flagger import Flagger
from serve.classifier.score_map import ScoreMap
from serve.dry_run.texts import Part
from serve.engine.row import Answer
from serve.policy.flag import AnyFlag, deferrals, thresholds
from serve.rules.criterion import Reason
from serve.rules.replay import Taken
from serve.rules.signals import decisions, probabilities
from serve.rules.traits import OUTSIDE, Traits
from serve.tokenization.entities import EntityReader
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.word_spans import NoWords, WordSpans

Texts: TypeAlias = NDArray[np.bool_]  # (texts,)
_NO_IDS = np.zeros(0, np.int64)
# A score flags as it is shown, to seven digits.
_NEAR = 1e-6


def full_depth(part: Part) -> Taken:
    """Return what rows leave the last exit with."""
    logits = part.recording.logits[-1]
    last = np.full(len(logits), len(part.recording.logits) - 1)
    return Taken(last, logits, last, np.full(len(logits), -1))


class AnswerReader:
    """Reads the answers of one model's texts from what their rows leave with."""

    def __init__(self, traits: Traits, scores: ScoreMap, tolerance: float | None) -> None:
        """Take the model's traits; `tolerance` is that of a regression, None if it has none."""
        self._traits, self._scores, self._tolerance = traits, scores, tolerance
        self._entities = EntityReader(traits.labels, NoWords()) if traits.task == "token" else None
        self._inside = np.array([label != OUTSIDE for label in traits.labels])

    def differs(self, part: Part, taken: Taken, mean: bool) -> Texts | None:
        """Return which texts are answered otherwise than at full depth.

        Args:
            part: the texts.
            taken: what their rows leave with.
            mean: whether the answer of several windows is their mean; else their maximum.

        Returns:
            None of a regression for which no calibration says what a difference is.
        """
        full, task = full_depth(part), self._traits.task
        if task == "token":
            return _any(part, self._other_entities(part, taken, full))
        if task == "regression":
            if self._tolerance is None:
                return None
            gap = np.abs(_value(part, taken, mean) - _value(part, full, mean))
            far: Texts = ~(gap <= self._tolerance)
            return far
        own, whole = (self._decided(part, each, mean) for each in (taken, full))
        other: Texts = (own != whole).reshape(len(own), -1).any(axis=1)
        return other

    def flagged(self, part: Part, taken: Taken, flag: AnyFlag, mean: bool) -> tuple[Texts, Texts]:
        """Return which texts are flagged, and which are deferred."""
        if self._entities:
            return self._of_entities(part, taken, Flagger(flag, self._traits, self._entities))
        p = self._shares(part, taken, mean)
        hit = self._reaching(p, thresholds(flag))
        return hit, self._reaching(p, deferrals(flag)) & ~hit

    def _decided(self, part: Part, taken: Taken, mean: bool) -> NDArray[np.int32]:
        task, many = self._traits.task, part.num_windows > 1
        decided = decisions(task, taken.deciding)[part.first]
        if many.any():
            p = self._shares(part, taken, mean)
            of_all = p > 0.5 if task == "multi_label" else p.argmax(axis=1)
            decided[many] = of_all[many]
        return decided

    def _shares(self, part: Part, taken: Taken, mean: bool) -> NDArray[np.float32]:
        """Return (texts, labels) the probabilities that are shown."""
        p = probabilities(self._traits.task, self._scores.logits(taken.logits, taken.heads))
        return _combined(part, p, mean).astype(np.float32)

    def _reaching(self, p: NDArray[np.float32], bounds: Mapping[str, float]) -> Texts:
        reached = np.zeros(len(p), np.bool_)
        for label, least in bounds.items():
            own = p[:, self._traits.labels.index(label)]
            hit: Texts = own >= least
            for place in np.flatnonzero(np.abs(own - least) <= _NEAR):
                hit[place] = float(f"{own[place]:.7g}") >= least
            reached |= hit
        return reached

    def _other_entities(self, part: Part, taken: Taken, full: Taken) -> NDArray[np.bool_]:
        """Return (rows,) whether a window's entities are others; its tags alone may be."""
        counted = part.recording.counted
        assert counted is not None
        tags = [decisions("token", each.deciding) for each in (taken, full)]
        other: Texts = ((tags[0] != tags[1]) & counted).any(axis=1)
        for row in np.flatnonzero(other):
            own, whole = (self._read(each.deciding[row], counted[row]) for each in (taken, full))
            other[row] = own != whole
        return other

    def _read(self, logits: NDArray[np.float32], counted: Texts) -> set[tuple[object, ...]]:
        assert self._entities is not None
        found = self._entities.read(logits, counted, _no_words(counted), "simple")
        return {(entity.label, entity.tokens) for entity in found}

    def _of_entities(self, part: Part, taken: Taken, flagger: Flagger) -> tuple[Texts, Texts]:
        counted = part.recording.counted
        assert counted is not None
        found = np.zeros((2, len(counted)), np.bool_)
        tags = decisions("token", taken.logits)
        for row in np.flatnonzero((self._inside[tags] & counted).any(axis=1)):
            head = int(taken.heads[row])
            bare = Answer(taken.logits[row], head, Reason.CONFIDENT, math.nan, 0.0, 0.0, head)
            answer = self._scores.answer(bare)
            tokens = Tokens(_NO_IDS, _NO_IDS, counted[row], _no_words(counted[row]))
            found[0, row] = bool(flagger.flags(answer, tokens))
            found[1, row] = bool(flagger.defer and flagger.defers(answer, tokens))
        flagged, deferred = (_any(part, each) for each in found)
        return flagged, deferred & ~flagged


def _combined(part: Part, values: NDArray[np.float32], mean: bool) -> NDArray[np.float64]:
    """Return (texts, ...) the mean or the maximum of the windows' values."""
    if not mean:
        return np.maximum.reduceat(values, part.first, dtype=np.float64)
    sums: NDArray[np.float64] = np.add.reduceat(values, part.first, dtype=np.float64)
    return (sums.T / part.num_windows).T


def _any(part: Part, windows: NDArray[np.bool_]) -> Texts:
    found: Texts = np.logical_or.reduceat(windows, part.first)
    return found


def _value(part: Part, taken: Taken, mean: bool) -> NDArray[np.float64]:
    return _combined(part, taken.logits[:, 0], mean)


def _no_words(counted: Texts) -> WordSpans:
    return WordSpans([""] * len(counted), None, np.zeros(len(counted), np.bool_))
