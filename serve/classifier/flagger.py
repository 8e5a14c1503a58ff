"""Which labels of a flag an answer fulfils."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.engine.row import Answer
from serve.policy.flag import AnyFlag, deferrals, thresholds
from serve.rules.signals import sigmoid, softmax
from serve.rules.traits import Traits, name_of
from serve.tokenization.entities import Aggregation, EntityReader
from serve.tokenization.tokenizer import Tokens


class FlaggedBy(NamedTuple):
    """A label that reaches its threshold, or an entity of such a label.

    Attributes:
        label: the label; of entities their name.
        score: the label's probability.
        span: span of an entity: its first character, and the one after its last.
    """

    label: str
    score: float
    span: tuple[int, int] | None = None


class Flagger:
    """Tells by which labels an answer is flagged or deferred, as one request asks for it.

    Attributes:
        asked: the flag as it was asked for.
        flag: for each label, the score from which on it flags.
        defer: for each label that defers, the score from which on it does.
    """

    def __init__(
        self,
        flag: AnyFlag,
        traits: Traits,
        entities: EntityReader | None,
        aggregation: Aggregation = "simple",
    ) -> None:
        """Take a flag that fits the model; it is compared with scores as answers show them.

        `entities` reads the answers of a token classifier; None for other tasks.
        """
        self.asked, self.flag, self.defer = flag, thresholds(flag), deferrals(flag)
        self._traits, self._entities, self._aggregation = traits, entities, aggregation

    def flags(self, answer: Answer, tokens: Tokens) -> list[str]:
        """Return the labels that flag an input or a window, in the order of the flag."""
        found = {each.label for each in self.found(answer, tokens)}
        return [label for label in self.flag if label in found]

    def defers(self, answer: Answer, tokens: Tokens) -> list[str]:
        """Return the labels that defer an input, in the order of the flag; none if any flags it."""
        if not self.defer or self.found(answer, tokens):
            return []
        found = {each.label for each in self._reaching(self.defer, answer, tokens)}
        return [label for label in self.defer if label in found]

    def found(self, answer: Answer, tokens: Tokens) -> list[FlaggedBy]:
        """Return what flags an answer: labels in the order of the flag, or entities of the text."""
        return self._reaching(self.flag, answer, tokens)

    def _reaching(
        self, bounds: Mapping[str, float], answer: Answer, tokens: Tokens
    ) -> list[FlaggedBy]:
        if self._entities is None:
            p = probabilities(answer, self._traits.task == "multi_label").tolist()
            scores = dict(zip(self._traits.labels, p, strict=True))
            return [
                FlaggedBy(label, scores[label])
                for label, least in bounds.items()
                if _shown(scores[label]) >= least
            ]
        assert tokens.counted is not None
        assert tokens.word_spans is not None
        entities = self._entities.read(
            answer.logits,
            tokens.counted,
            tokens.word_spans,
            self._aggregation,
            answer.score_logits,
        )
        named = [
            FlaggedBy(name_of(e.label) if self._aggregation == "none" else e.label, e.score, e.span)
            for e in entities
        ]
        return [e for e in named if e.label in bounds and _shown(e.score) >= bounds[e.label]]


def _shown(score: float) -> float:
    """Return a float32 to seven digits, so that a score flags at the threshold that it reads."""
    return float(f"{score:.7g}")


def probabilities(answer: Answer, of_many: bool) -> NDArray[np.float32]:
    """Return (labels,) the probability of each label, of which many or just one may apply."""
    if of_many:
        return sigmoid(answer.score_logits)
    return softmax(answer.score_logits) if answer.scores is None else answer.scores
