"""The rows of texts that were cut into windows, and what their answers make of the texts."""

from collections import Counter
from collections.abc import Sequence

from serve.classifier.combined import WindowsReport, combine
from serve.classifier.flagger import Flagger
from serve.engine.row import Answer, Row
from serve.policy.windowing import Windows
from serve.rules.traits import Task
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut


class Windowed:
    """The rows of a request of which at least one text has several windows. On one event loop.

    Under `any` the first window that is flagged ends the work on its text.

    Attributes:
        tokens: tokens of each row, in order: each text, or each window of it.
        winners: for each text, the place of the row that has answered for it.
    """

    def __init__(
        self, texts: Sequence[Tokens | Cut], windows: Windows, flagger: Flagger | None, task: Task
    ) -> None:
        """Lay out the rows of the texts."""
        self.tokens: list[Tokens] = []
        self.winners: dict[int, int] = {}
        self._texts, self._windows, self._task = texts, windows, task
        self._flagger = flagger if windows.combine == "any" else None
        self._text_of: list[int] = []
        for place, text in enumerate(texts):
            self.tokens += text.windows if isinstance(text, Cut) else [text]
            self._text_of += [place] * num_windows(text)
        self._sizes = Counter(self._text_of)
        self._rows: Sequence[Row] = ()
        self._open = set(range(len(self._text_of)))

    def start(self, rows: Sequence[Row]) -> None:
        """Take the rows, before any of them has an outcome."""
        self._rows = rows

    def over(self, place: int) -> bool:
        """Tell whether a row's text has been answered by another row."""
        return self._text_of[place] in self.winners

    def finish(self, place: int, answer: Answer) -> int:
        """Take the answer of a row; return how many rows need none any more."""
        self._open.discard(place)
        text = self._text_of[place]
        if self._flagger is None or self._sizes[text] == 1:
            return 0
        if not self._flagger.flags(answer, self.tokens[place]):
            return 0
        self.winners[text] = place
        others = [other for other in self._open if self._text_of[other] == text]
        for other in others:
            self._rows[other].cancelled = True
        self._open.difference_update(others)
        return len(others)

    def combined(
        self, answers: Sequence[Answer | None]
    ) -> tuple[list[Answer], list[Tokens], dict[int, WindowsReport]]:
        """Return the answers of the texts, what each is about, and the reports of cut ones.

        Rows that were cancelled have no answer.
        """
        of_texts, tokens, reports = list[Answer](), list[Tokens](), dict[int, WindowsReport]()
        first = 0
        for place, text in enumerate(self._texts):
            end = first + num_windows(text)
            answer, about = answers[first], text
            if isinstance(text, Cut):
                winner = self.winners.get(place)
                decided = None if winner is None else winner - first
                own = answers[first:end]
                answer, about, reports[place] = combine(
                    text, own, decided, self._windows, self._task
                )
            assert answer is not None
            assert isinstance(about, Tokens)
            of_texts.append(answer)
            tokens.append(about)
            first = end
        return of_texts, tokens, reports


def num_windows(text: Tokens | Cut) -> int:
    """Return how many rows an input has."""
    return len(text.windows) if isinstance(text, Cut) else 1


def num_tokens(text: Tokens | Cut) -> int:
    """Return the tokens of an input, those that its windows share once."""
    return len((text.whole if isinstance(text, Cut) else text).input_ids)
