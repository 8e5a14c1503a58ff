"""A text that has been answered and is drawn for an audit, and what the audit finds of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from serve.audits.counts import DEGRADED, REQUEST, AuditKey, Promise, Seen, Tally, promise_of
from serve.audits.record import AuditRecord, RowLogits
from serve.classifier.classification import Classification
from serve.classifier.flagger import Flagger, probabilities
from serve.classifier.score_map import ScoreMap
from serve.classifier.table_exit import TableExit
from serve.classifier.windowed import combine
from serve.engine.audit_rows import EveryExit
from serve.engine.outputs import non_finite_rows
from serve.engine.row import Answer
from serve.engine.runner import Ids
from serve.policy.document import DEFAULT
from serve.policy.ladder import SCORE_TOLERANCE
from serve.policy.profile import Windows
from serve.policy.served_ladder import ServedLadder
from serve.rules.criterion import Reason
from serve.rules.replay import unjudged_before
from serve.rules.signals import decisions
from serve.rules.traits import Traits
from serve.tokenization.entities import Aggregation, EntityReader
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut
from serve.tokenization.word_spans import WordSpans


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
        table: answers texts before the first layer; None where the model has no table.
    """

    traits: Traits
    scores: ScoreMap
    entities: EntityReader | None
    tolerance: float = 0.0
    table: TableExit | None = None

    @classmethod
    def of(
        cls,
        traits: Traits,
        scores: ScoreMap,
        entities: EntityReader | None,
        ladder: ServedLadder,
        table: TableExit | None = None,
    ) -> Self | None:
        """Return how a model's answers are compared; None where there is nothing to compare.

        That is where the last exit is the only one, and of a regression without a calibration,
        which says how near two values must be.
        """
        tolerance = ladder.certified.tolerance if ladder.certified else None
        if len(traits.layers) == 1 or (traits.task == "regression" and tolerance is None):
            return None
        return cls(traits, scores, entities, tolerance or 0.0, table)

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


@dataclass(frozen=True, slots=True, eq=False)
class AuditedText:
    """A text that has been answered, without its characters.

    Attributes:
        profile: the profile that has answered, of the live policy or a candidate; see `AuditKey`.
        keys: what it is counted as.
        sent: the answer.
        exit_index: where the text left; of several windows, that which decided.
        early: whether the text, or any window of it, left before the last exit.
        text: the text's tokens, or its windows.
        decided: the window that the answer rests on; 0 without windows.
        windows: how its windows are combined; None of a single one.
        flagger: tells what flags it; None without a flag.
        aggregation: how tokens become entities.
        comparing: how it is compared.
    """

    profile: str
    keys: Sequence[AuditKey]
    sent: TextAnswer
    exit_index: int
    early: bool
    text: Tokens | Cut
    decided: int
    windows: Windows | None
    flagger: Flagger | None
    aggregation: Aggregation
    comparing: Comparing

    @property
    def rows(self) -> Sequence[tuple[Ids, Ids]]:
        """Token ids and types of the text, or of each of its windows."""
        return [(tokens.input_ids, tokens.token_type_ids) for tokens in self._tokens]

    def compare(self, rows: Sequence[EveryExit]) -> Tally:
        """Return what the audit has found, given what every exit says of `rows`.

        Raises:
            ValueError: full depth has no answer.
        """
        sent, full = self.sent, self._full([self.comparing.answer(row) for row in rows])
        now, before = self._flagged(full), self._flagged(sent)
        seen = Seen(
            audited=1,
            differ=int(self.comparing.differs(sent, full, self.aggregation)),
            score_differ=int(self.comparing.score_differs(sent, full)),
            flagged=int(now),
            missed=int(now and not before),
            false_alarms=int(before and not now),
        )
        return Tally.of(seen, self.comparing.traits.layer_of(self.exit_index), self.early)

    def record(self, rows: Sequence[EveryExit]) -> AuditRecord:
        """Return what is kept of the audit, given what every exit says of `rows`."""
        kept = [
            RowLogits(self._of_places(row.logits, tokens), row.uncertainty, tokens.counted)
            for row, tokens in zip(rows, self._tokens, strict=True)
        ]
        return AuditRecord(self.profile, tuple(kept))

    def _of_places(self, logits: NDArray[np.float32], tokens: Tokens) -> NDArray[np.float32]:
        """Return what the exits say, after what the table says; of windows it says nothing.

        What a small model in front says of audited texts is not known.
        """
        logits = unjudged_before(logits, self.comparing.traits.num_before)
        table = self.comparing.table
        if table and not isinstance(self.text, Cut):
            logits[0] = table.look(tokens.input_ids).logits
        return logits

    @property
    def _tokens(self) -> Sequence[Tokens]:
        return self.text.windows if isinstance(self.text, Cut) else [self.text]

    def _flagged(self, found: TextAnswer) -> bool:
        return bool(self.flagger and self.flagger.flags(found.answer, found.tokens))

    def _full(self, answers: Sequence[Answer]) -> TextAnswer:
        """Return full depth's answer to the text from those to its windows."""
        if not isinstance(self.text, Cut):
            return TextAnswer(answers[0], self.text)
        assert self.windows is not None
        winner, task = self._winner(answers, self.text), self.comparing.traits.task
        combined = combine(self.text, answers, winner, self.windows, task)
        return TextAnswer(combined.answer, combined.tokens)

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


def audited_text(done: Classification, place: int, comparing: Comparing) -> AuditedText:
    """Return one of a request's texts; the result holds no characters of it."""
    text, answer = done.texts[place], done.answers[place]
    report, profile = done.reports.get(place), _profile_of(done)
    exits = report.exit_indices if report else (answer.exit_index,)
    return AuditedText(
        profile=profile,
        keys=_keys(done, answer, profile, report is not None),
        sent=TextAnswer(answer, _bare(done.tokens[place])),
        exit_index=answer.exit_index,
        early=min(exits) < len(comparing.traits.exits) - 1,
        text=_bare_cut(text) if isinstance(text, Cut) else _bare(text),
        decided=report.answered if report else 0,
        windows=done.windows if report else None,
        flagger=done.flagger,
        aggregation=done.aggregation,
        comparing=comparing,
    )


def _keys(done: Classification, answer: Answer, profile: str, windowed: bool) -> list[AuditKey]:
    """Return what a text is counted as.

    Promises are the live policy's, and no candidate's. What a faster rung has answered under
    overload, or at the request's own deadline, says nothing of either arm.
    """
    arm, moved = done.live.arm, done.chosen.moved
    found: list[AuditKey] = []
    if arm is None or moved or arm.name == "live":
        found.append(AuditKey(profile, None if windowed else _promise(done, profile, answer)))
    if arm and done.judged and not moved and answer.reason is not Reason.DEADLINE:
        found.append(AuditKey.of_arm(arm))
    return found


def _profile_of(done: Classification) -> str:
    """Return the name that a request's texts are counted under; see `AuditKey`."""
    if done.chosen.moved:
        return DEGRADED
    choice = done.asked.exit_choice
    name = done.live.entry.policy.default if choice is None else choice
    if isinstance(name, str):
        return name
    return DEFAULT if choice is None else REQUEST


def _promise(done: Classification, profile: str, answer: Answer) -> Promise | None:
    """Return what is promised of an answer to a text of one window; None if nothing is.

    Entities are certified as they are found by default, and a deadline is not part of a rule.
    """
    if answer.reason is Reason.DEADLINE or done.aggregation != "simple":
        return None
    return promise_of(done.live, profile, done.chosen)


def _bare(tokens: Tokens) -> Tokens:
    """Return tokens without the characters of their text."""
    spans = tokens.word_spans
    if spans is None:
        return tokens
    return tokens._replace(word_spans=WordSpans([""] * len(spans.pieces), *spans[1:]))


def _bare_cut(cut: Cut) -> Cut:
    windows = [_bare(window) for window in cut.windows]
    return cut._replace(whole=_bare(cut.whole), windows=windows)
