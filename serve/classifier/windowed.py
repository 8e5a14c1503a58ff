"""Texts that were cut into windows: their rows, and what the rows' answers make of the texts."""

from collections.abc import Sequence
from typing import NamedTuple

from serve.classifier.combined import WindowsReport, combine
from serve.classifier.flagger import Flagger
from serve.classifier.race import Race
from serve.classifier.request import ModelRequest
from serve.engine.row import Answer
from serve.errors import InvalidRequest
from serve.policy.profile import Settings
from serve.policy.windows import Windows, check_windows
from serve.rules.traits import Task, Traits
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut


class Answered(NamedTuple):
    """The answers of texts, what they are about, and the reports of those that were cut."""

    answers: list[Answer]
    tokens: list[Tokens]
    reports: dict[int, WindowsReport]


class Windowed:
    """The texts of a request of which at least one has several windows.

    Attributes:
        tokens: of each row, in order: each text, or each window of it.
        race: ends the work on a text at its first flagged window, where that is wanted.
    """

    def __init__(
        self, texts: Sequence[Tokens | Cut], windows: Windows, flagger: Flagger | None, task: Task
    ) -> None:
        """Lay out the rows of the texts."""
        self.tokens: list[Tokens] = []
        self._texts, self._windows, self._task = texts, windows, task
        text_of: list[int] = []
        for place, text in enumerate(texts):
            self.tokens += text.windows if isinstance(text, Cut) else [text]
            text_of += [place] * num_windows(text)
        self.race: Race | None = None
        if flagger and windows.combine == "any":

            def flagged(place: int, answer: Answer) -> bool:
                return bool(flagger.flags(answer, self.tokens[place]))

            self.race = Race(text_of, flagged)

    def answered(self, answers: Sequence[Answer | None]) -> Answered:
        """Return the answers of the texts from those of their rows.

        Rows that were cancelled have none.
        """
        found = Answered([], [], {})
        first = 0
        for place, text in enumerate(self._texts):
            end = first + num_windows(text)
            answer, tokens, report = self._of_text(place, text, answers[first:end], first)
            found.answers.append(answer)
            found.tokens.append(tokens)
            if report:
                found.reports[place] = report
            first = end
        return found

    def _of_text(
        self, place: int, text: Tokens | Cut, answers: Sequence[Answer | None], first: int
    ) -> tuple[Answer, Tokens, WindowsReport | None]:
        if isinstance(text, Cut):
            winners = self.race.winners if self.race else {}
            winner = winners[place] - first if place in winners else None
            return combine(text, answers, winner, self._windows, self._task)
        (answer,) = answers
        assert answer is not None
        return answer, text, None


def num_windows(text: Tokens | Cut) -> int:
    """Return how many rows an input has."""
    return len(text.windows) if isinstance(text, Cut) else 1


def num_tokens(text: Tokens | Cut) -> int:
    """Return the tokens of an input, those that its windows share once."""
    return len((text.whole if isinstance(text, Cut) else text).input_ids)


def windows_for(
    request: ModelRequest, settings: Settings, flags: bool, traits: Traits
) -> Windows | None:
    """Return how a request's long texts are cut; None where they are not.

    Raises:
        InvalidRequest: the model or the request has no use for windows like this.
    """
    # A text that its request wants cut short needs no windows of the profile.
    windows = request.windows or (None if request.truncate else settings.windows)
    if windows is None:
        return None
    check_windows(windows, flags, traits)
    if request.truncate:
        raise InvalidRequest("truncate: the texts are cut into windows; send one of the two")
    if request.exit_trace and traits.task == "token":
        raise InvalidRequest(
            "return: exits of tokens are not shown with windows; leave exits or windows out"
        )
    return windows
