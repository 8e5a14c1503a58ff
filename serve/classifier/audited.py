"""An answer that has been sent, compared with the one that full depth would have given."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from serve.audits.counts import DEGRADED, Key
from serve.audits.record import AuditRecord, RowLogits
from serve.audits.tally import Compared, Tally
from serve.classifier.combined import combine
from serve.classifier.flagger import Flagger, probabilities
from serve.classifier.score_map import ScoreMap
from serve.engine.audit_rows import EveryExit
from serve.engine.outputs import non_finite_rows
from serve.engine.row import Answer
from serve.engine.runner import Ids
from serve.policy.ladder import SCORE_TOLERANCE
from serve.policy.rollout import ArmOf
from serve.policy.served_ladder import ServedLadder
from serve.policy.windows import Windows
from serve.rules.multipart import decisions
from serve.rules.reason import Reason
from serve.rules.traits import Traits
from serve.tokenization.entities import Aggregation, EntityReader
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut


class Answered(NamedTuple):
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
        tolerance: of a regression: values further apart differ.
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

    def differs(self, sent: Answered, full: Answered, aggregation: Aggregation) -> bool:
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

    def score_differs(self, sent: Answered, full: Answered) -> bool:
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
        self, answered: Answered, aggregation: Aggregation
    ) -> list[tuple[str, tuple[int, int]]]:
        tokens = answered.tokens
        assert self.entities is not None
        assert tokens.counted is not None
        assert tokens.word_spans is not None
        found = self.entities.read(
            answered.answer.logits, tokens.counted, tokens.word_spans, aggregation
        )
        return [(entity.label, entity.span or entity.tokens) for entity in found]


@dataclass(frozen=True, slots=True, eq=False)
class ServedText:
    """A text that has been answered, without its characters.

    Attributes:
        sent: the answer.
        text: its tokens, or its windows.
        decided: the window that the answer rests on; 0 without windows.
        windows: how its windows are combined; None of a single one.
        flagger: tells what flags it; None without a flag.
        aggregation: how tokens become entities.
        draft: its record, without what is found by comparing.
        comparing: how it is compared.
        arm: of the rollout that has answered; None without one.
    """

    sent: Answered
    text: Tokens | Cut
    decided: int
    windows: Windows | None
    flagger: Flagger | None
    aggregation: Aggregation
    draft: AuditRecord
    comparing: Comparing
    arm: ArmOf | None = None

    @property
    def keys(self) -> Sequence[Key]:
        """All that it is counted as.

        Promises are the live policy's, and no candidate's. What a faster rung has answered under
        overload says nothing of either arm.
        """
        own = Key(self.draft.profile, self.draft.promise)
        if self.arm is None or own.profile == DEGRADED:
            return [own]
        of_arm = Key.of_arm(self.arm)
        return [own, of_arm] if self.arm.name == "live" else [of_arm]

    @property
    def rows(self) -> Sequence[tuple[Ids, Ids]]:
        """Token ids and types of the text, or of each of its windows."""
        return [(tokens.input_ids, tokens.token_type_ids) for tokens in self._tokens]

    def compare(self, rows: Sequence[EveryExit]) -> tuple[AuditRecord, Tally]:
        """Return what comes of the audit; see `serve.audits.lane.Served`.

        Raises:
            ValueError: full depth has no answer.
        """
        sent, full = self.sent, self._full([self.comparing.answer(row) for row in rows])
        now, before = self._flagged(full), self._flagged(sent)
        compared = Compared(
            differs=self.comparing.differs(sent, full, self.aggregation),
            score_differs=self.comparing.score_differs(sent, full),
            flagged=now,
            missed=now and not before,
            false_alarm=before and not now,
        )
        kept = [
            RowLogits(row.logits, row.uncertainty, tokens.counted)
            for row, tokens in zip(rows, self._tokens, strict=True)
        ]
        record = self.draft._replace(time_s=time.time(), compared=compared, rows=tuple(kept))
        layer = self.comparing.traits.exits[record.exit_index]
        return record, Tally.of(compared, layer, record.early)

    @property
    def _tokens(self) -> Sequence[Tokens]:
        return self.text.windows if isinstance(self.text, Cut) else [self.text]

    def _flagged(self, answered: Answered) -> bool:
        return bool(self.flagger and self.flagger.flags(answered.answer, answered.tokens))

    def _full(self, answers: Sequence[Answer]) -> Answered:
        """Return full depth's answer to the text from those to its windows."""
        if not isinstance(self.text, Cut):
            return Answered(answers[0], self.text)
        assert self.windows is not None
        winner, task = self._winner(answers, self.text), self.comparing.traits.task
        combined = combine(self.text, answers, winner, self.windows, task)
        return Answered(combined.answer, combined.tokens)

    def _winner(self, answers: Sequence[Answer], text: Cut) -> int | None:
        """Return the window that would have answered for all of them; None if they are combined.

        Which flagged window of several is the first to finish is chance. Where the one that was is
        flagged at full depth too, nothing differs.
        """
        if self.windows is None or self.windows.combine != "any" or self.flagger is None:
            return None
        pairs = enumerate(zip(answers, text.windows, strict=True))
        flagged = [i for i, (answer, tokens) in pairs if self.flagger.flags(answer, tokens)]
        return self.decided if self.decided in flagged else next(iter(flagged), None)


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
