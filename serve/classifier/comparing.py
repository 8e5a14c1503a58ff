"""How an answer that was sent is compared with the one that full depth gives."""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from serve.classifier.flagger import probabilities
from serve.classifier.score_map import ScoreMap
from serve.engine.audit_rows import EveryExit
from serve.engine.outputs import non_finite_rows
from serve.engine.row import Answer
from serve.policy.ladder import SCORE_TOLERANCE
from serve.policy.served_ladder import ServedLadder
from serve.rules.multipart import decisions
from serve.rules.reason import Reason
from serve.rules.traits import Traits
from serve.tokenization.entities import Aggregation, EntityReader
from serve.tokenization.tokenizer import Tokens


class TextAnswer(NamedTuple):
    """An answer and the tokens that it is about."""

    answer: Answer
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Comparing:
    """How the answers of one model are compared.

    Attributes:
        traits: the model.
        scores: maps the scores of its exits.
        entities: reads the answers of a token classifier; None for other tasks.
        tolerance: values of a regression that are further apart differ.
    """

    traits: Traits
    scores: ScoreMap
    entities: EntityReader | None
    tolerance: float = 0.0

    @classmethod
    def of(
        cls, traits: Traits, scores: ScoreMap, entities: EntityReader | None, ladder: ServedLadder
    ) -> Self | None:
        """Return how a model's answers are compared; None where there is nothing to compare.

        That is where the last exit is the only one, and of a regression without a calibration,
        which says how near two values must be.
        """
        tolerance = ladder.certified.tolerance if ladder.certified else None
        if len(traits.exits) == 1 or (traits.task == "regression" and tolerance is None):
            return None
        return cls(traits, scores, entities, tolerance or 0.0)

    def answer(self, row: EveryExit) -> Answer:
        """Return full depth's answer to a text, or to a window.

        Raises:
            ValueError: it has none, since its logits are no numbers.
        """
        logits, last = row.logits[-1], len(self.traits.exits) - 1
        if non_finite_rows(self.traits.task, logits[None]).any():
            raise ValueError("full depth gave no number")
        answer = Answer(logits, last, Reason.FINAL, math.nan, 0.0, 0.0, last)
        return self.scores.answer(answer)

    def differs(self, sent: TextAnswer, full: TextAnswer, aggregation: Aggregation) -> bool:
        """Tell whether two answers to a text are not the same."""
        one, other, task = sent.answer, full.answer, self.traits.task
        if task == "regression":
            # As `Recorded.same` has it: a value that is no number is near nothing.
            near = abs(float(one.logits[0]) - float(other.logits[0])) <= self.tolerance
            return not near
        if task == "token":
            return self._entities(sent, aggregation) != self._entities(full, aggregation)
        if task == "single_label":
            return _label(one) != _label(other)
        return not np.array_equal(decisions(task, one.logits), decisions(task, other.logits))

    def score_differs(self, sent: TextAnswer, full: TextAnswer) -> bool:
        """Tell whether a shown score is too far from full depth's of the same label."""
        task = self.traits.task
        if task == "regression" or sent.answer.logits.shape != full.answer.logits.shape:
            return False
        gaps = np.abs(_scores(sent.answer, self.traits) - _scores(full.answer, self.traits))
        if task == "single_label":
            gaps = gaps[_label(sent.answer)]
        elif task == "token":
            chosen = decisions(task, sent.answer.logits)[:, None]
            gaps = np.take_along_axis(gaps, chosen, axis=-1)[sent.tokens.counted]
        return bool((gaps > SCORE_TOLERANCE).any())

    def _entities(
        self, shown: TextAnswer, aggregation: Aggregation
    ) -> list[tuple[str, tuple[int, int]]]:
        tokens = shown.tokens
        assert self.entities is not None
        assert tokens.counted is not None
        assert tokens.word_spans is not None
        found = self.entities.read(
            shown.answer.logits, tokens.counted, tokens.word_spans, aggregation
        )
        return [(entity.label, entity.span or entity.tokens) for entity in found]


def _label(answer: Answer) -> int:
    """Return the label that a result shows."""
    return (
        answer.label
        if answer.label >= 0
        else int(decisions("single_label", answer.logits[None])[0])
    )


def _scores(answer: Answer, traits: Traits) -> NDArray[np.float32]:
    """Return the score of every label as it is shown, of every token where these are labelled."""
    return probabilities(answer, traits.task == "multi_label")
