"""What an answered request leaves for the audits of its texts."""

from typing import NamedTuple

from serve.audits.counts import DEGRADED, REQUEST, Promise
from serve.audits.promises import promise_of
from serve.audits.record import AuditRecord
from serve.audits.tally import Compared
from serve.classifier.audited import Answered, Comparing, ServedText
from serve.classifier.flagger import Flagger
from serve.classifier.request import ModelRequest
from serve.classifier.request_tokenizer import Texts
from serve.classifier.windowed import Answered as AnsweredTexts
from serve.classifier.windowed import num_tokens
from serve.engine.row import Answer
from serve.policy.chosen_exit import ChosenExit
from serve.policy.document import DEFAULT, ExitChoice, Policy
from serve.policy.live import Live
from serve.policy.target import TargetChoice
from serve.policy.windows import Windows
from serve.rules.reason import Reason
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut
from serve.tokenization.word_spans import WordSpans


class AuditedRequest(NamedTuple):
    """An answered request of which a text is drawn. What it makes of a text holds no characters.

    Attributes:
        request: what was asked.
        live: the policy that it was answered under.
        chosen: what its choice had become.
        texts: of the request.
        windows: how long ones were cut.
        flagger: tells what flags them.
        answered: the answers.
    """

    request: ModelRequest
    live: Live
    chosen: ChosenExit
    texts: Texts
    windows: Windows | None
    flagger: Flagger | None
    answered: AnsweredTexts

    def served(self, place: int, comparing: Comparing) -> ServedText:
        """Return one of its texts as it has been served."""
        text, answer = self.texts[place], self.answered.answers[place]
        report = self.answered.reports.get(place)
        last = len(comparing.traits.exits) - 1
        exits = report.exit_indices if report else (answer.exit_index,)
        choice, rule = self.request.exit_choice, self.chosen.rule.rule
        moved = self.chosen.moved
        profile = DEGRADED if moved else profile_of(choice, self.live.entry.policy)
        draft = AuditRecord(
            time_s=0.0,
            version=self.live.entry.version,
            profile=profile,
            rule=rule.model_dump_json(exclude_none=True),
            target=_own_target(choice),
            promise=None if report else self._promise(profile, answer),
            exit_index=answer.exit_index,
            early=min(exits) < last,
            deadline=answer.reason is Reason.DEADLINE,
            num_tokens=num_tokens(text),
            compared=Compared(False),
            rows=(),
            windows=self.windows if report else None,
            flag=self.flagger.asked if self.flagger else None,
        )
        return ServedText(
            Answered(answer, _without_characters(self.answered.tokens[place])),
            _cut_without_characters(text) if isinstance(text, Cut) else _without_characters(text),
            report.answered if report else 0,
            draft.windows,
            self.flagger,
            self.request.aggregation,
            draft,
            comparing,
            self.live.arm,
        )

    def _promise(self, profile: str, answer: Answer) -> Promise | None:
        """Return what is promised of an answer to a text of one window; None if nothing is.

        Entities are certified as they are found by default, and a deadline is not part of a rule.
        """
        if answer.reason is Reason.DEADLINE or self.request.aggregation != "simple":
            return None
        return promise_of(self.live, profile, self.chosen)


def profile_of(choice: ExitChoice | None, policy: Policy) -> str:
    """Return what the answers to a request's choice are counted as, see `Key`."""
    name = policy.default if choice is None else choice
    if isinstance(name, str):
        return name
    return DEFAULT if choice is None else REQUEST


def _own_target(choice: ExitChoice | None) -> str | None:
    if not isinstance(choice, TargetChoice):
        return None
    return choice.target.model_dump_json(exclude_none=True)


def _without_characters(tokens: Tokens) -> Tokens:
    spans = tokens.word_spans
    if spans is None:
        return tokens
    return tokens._replace(word_spans=WordSpans([""] * len(spans.pieces), *spans[1:]))


def _cut_without_characters(cut: Cut) -> Cut:
    windows = [_without_characters(window) for window in cut.windows]
    return cut._replace(whole=_without_characters(cut.whole), windows=windows)
